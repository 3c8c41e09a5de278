"""YAML and JSON documents, with the line where one is broken."""

import json
from typing import Any

import yaml

from meshfit.cluster.discover.text import SourceText

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def load(source: SourceText) -> Any:
    """The document (a list of them where there are several). Fails with the line."""
    text = source.text
    if text.lstrip().startswith(("{", "[")):
        try:
            return json.loads(text)
        except ValueError as error:
            line = getattr(error, "lineno", None)
            source.fail(line, f"broken JSON: {getattr(error, 'msg', error)}")
        except RecursionError:
            source.fail(None, "JSON nested too deep")
    try:
        documents = [part for part in yaml.load_all(text, _Loader) if part is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or type(error).__name__
        source.fail(mark.line + 1 if mark else None, f"broken YAML: {problem}")
    return documents[0] if len(documents) == 1 else documents
