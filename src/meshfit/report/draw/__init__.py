"""A topology as a picture: a scene of nested boxes, drawn as a terminal tree or as SVG."""
