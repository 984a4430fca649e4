"""The Arrow project's golden integration files, of seven versions and both orders of bytes, through put and get.

GPUBUF_ARROW_TESTING names a checkout of Arrow's repository arrow-testing, which no index of packages has; without it
these tests are skipped.
"""

import os
import pathlib

import pytest

pa = pytest.importorskip("pyarrow")

HOME = pathlib.Path(os.environ.get("GPUBUF_ARROW_TESTING", "/none")) / "data" / "arrow-ipc-stream" / "integration"
FILES = [str(path.relative_to(HOME)) for ending in ("arrow_file", "stream") for path in sorted(HOME.rglob(f"*.{ending}"))]
# Part of a file's name: of what the sentence speaks that refuses it. As PYTHON-TYPES.md's table of types says.
REFUSED = {
    "_union.": (TypeError, "unions cannot be put: make a column of each type"),
    "_decimal256.": (TypeError, "decimals of other than 128 bits cannot be put: cast it to decimal128"),
    "_decimal32.": (TypeError, "decimals of other than 128 bits"), "_decimal64.": (TypeError, "decimals of other than 128 bits"),
    "_list_view.": (TypeError, "views of lists cannot be put: cast it to list"),
    "_run_end_encoded.": (TypeError, "runs of equal values cannot be put: decode it"),
    "_duplicate_fieldnames.": (ValueError, "there is a column .* already"),
}
VIEWS = {"string_view": "large_string", "binary_view": "large_binary"}


@pytest.fixture(scope="module", autouse=True)
def there_are_files():
    if not FILES:
        pytest.skip("needs GPUBUF_ARROW_TESTING, a checkout of Arrow's repository arrow-testing")


def read(path):
    with pa.memory_map(str(HOME / path)) as source:
        return (pa.ipc.open_file if path.endswith("arrow_file") else pa.ipc.open_stream)(source).read_all()


def kept(kind):
    """The type that comes back: no field is `not null`, items of lists are called item, views are large."""
    if str(kind) in VIEWS:
        return getattr(pa, VIEWS[str(kind)])()
    if isinstance(kind, pa.ExtensionType):
        return kind
    if pa.types.is_map(kind):
        return pa.map_(kept(kind.key_type), kept(kind.item_type), kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(kept(kind.value_type), kind.list_size)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return (pa.list_ if pa.types.is_list(kind) else pa.large_list)(kept(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, kept(field.type)) for field in kind])
    return kind


def compare(got, given):
    assert got.schema.names == given.schema.names and (got.schema.metadata or {}) == (given.schema.metadata or {})
    for field, one, other in zip(given.schema, got.columns, given.columns):
        assert one.type == kept(field.type), f"{field.name}: {one.type}, it was {field.type}"
        assert (got.schema.field(field.name).metadata or {}) == (field.metadata or {}), field.name
        assert one.null_count == other.null_count and len(one) == len(other)
        if one.type == other.type:
            assert one.equals(other), field.name
        else:
            assert one.to_pylist() == other.to_pylist(), field.name


@pytest.mark.parametrize("path", FILES)
def test_golden_files_there_and_back(there, path):
    given = read(path)
    for part, (kind, sentence) in REFUSED.items():
        if part in path:
            with pytest.raises(kind, match=sentence):
                there(given)
            return
    try:
        parts = [(there(given), given)]
    except ValueError as error:  # each batch has dictionaries of its own; pyarrow cannot unify all
        assert "the batches have different dictionaries" in str(error)
        parts = ((there(batch), pa.Table.from_batches([batch])) for batch in given.to_batches())
    for table, part in parts:
        compare(table.to_pyarrow(), part)
