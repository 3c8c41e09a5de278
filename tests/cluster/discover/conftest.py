import pytest

from meshfit.cluster.discover.conclude import conclude
from meshfit.cluster.discover.document import discovery_document
from meshfit.cluster.discover.formats import readings_of
from meshfit.cluster.discover.merge import merge
from meshfit.cluster.discover.text import source_of


@pytest.fixture
def found():
    """The cluster that texts make together."""

    def read(*texts, accelerator=None):
        readings = [
            reading
            for index, text in enumerate(texts)
            for reading in readings_of(source_of(f"file{index}", text))
        ]
        return conclude(merge(readings), accelerator)

    return read


@pytest.fixture
def document(found):
    """As ``found``, as the document that is printed."""
    return lambda *texts, accelerator=None: discovery_document(
        found(*texts, accelerator=accelerator)
    )


@pytest.fixture
def shape():
    """Names, sizes and kinds of levels."""
    return lambda document: [(one["name"], one["size"], one["kind"]) for one in document["levels"]]
