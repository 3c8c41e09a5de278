"""Parts that views of the terminal and the page share: words, cells, lists of violations."""
