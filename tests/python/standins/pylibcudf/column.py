class Column:
    def __init__(self, data_type, size, data, mask, null_count, offset, children, validate=True):
        assert all(hasattr(span, "ptr") and hasattr(span, "size") for span in (data, mask) if span is not None)
        self._told = data_type, size, data, mask, null_count, offset, list(children)

    type, size, data, null_mask, null_count, offset, children = (
        lambda self, i=i: self._told[i] for i in range(7))

    def child(self, i):
        return self._told[6][i]

    def with_mask(self, mask, null_count):
        return Column(*self._told[:3], mask, null_count, *self._told[5:])
