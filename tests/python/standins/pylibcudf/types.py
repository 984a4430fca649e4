import enum

TypeId = enum.IntEnum("type_id", [
    "INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64", "FLOAT32", "FLOAT64", "BOOL8", "TIMESTAMP_DAYS",
    "TIMESTAMP_SECONDS", "TIMESTAMP_MILLISECONDS", "TIMESTAMP_MICROSECONDS", "TIMESTAMP_NANOSECONDS", "DURATION_DAYS",
    "DURATION_SECONDS", "DURATION_MILLISECONDS", "DURATION_MICROSECONDS", "DURATION_NANOSECONDS", "DICTIONARY32", "STRING", "LIST",
    "DECIMAL32", "DECIMAL64", "DECIMAL128", "STRUCT"])
TypeId = enum.IntEnum("type_id", {"EMPTY": 0, **{one.name: one.value for one in TypeId}})


class DataType:
    def __init__(self, id_, scale=0):
        self._id, self._scale = id_, scale

    def id(self):
        return self._id

    def scale(self):
        return self._scale
