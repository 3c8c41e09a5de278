"""XML as elements that know their line."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from xml.parsers import expat

from meshfit.cluster.discover.text import SourceText


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    line: int
    children: list["Element"] = field(default_factory=list)

    def get(self, name: str) -> str | None:
        """An attribute; None where it is not there or empty."""
        return self.attributes.get(name) or None

    def find_all(self, tag: str) -> Iterator["Element"]:
        """Every element below with this tag, in document order."""
        for child in self.children:
            if child.tag == tag:
                yield child
            yield from child.find_all(tag)


def is_xml(source: SourceText) -> bool:
    return source.text.lstrip().startswith("<")


def root_tag(source: SourceText) -> str | None:
    """The tag of the first element, found without reading the rest; None: no XML."""
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.StartElementHandler = lambda tag, _: found.append(tag)
    with suppress(expat.ExpatError):
        parser.Parse(source.text.lstrip(), True)
    return found[0] if found else None


def parse_xml(source: SourceText) -> Element:
    """The root element. Fails with the line where the document is broken or cut short."""
    parser = expat.ParserCreate()
    top = Element("", {}, 0)
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag, attributes, parser.CurrentLineNumber + skipped)
        stack[-1].children.append(element)
        stack.append(element)

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _: stack.pop()
    parser.EntityDeclHandler = lambda *_: source.fail(None, "declares entities; none is needed")
    stripped = source.text.lstrip()
    skipped = source.text[: len(source.text) - len(stripped)].count("\n")
    try:
        parser.Parse(stripped, True)
    except expat.ExpatError as error:
        source.fail(error.lineno + skipped, f"broken XML: {expat.ErrorString(error.code)}")
    return top.children[0]
