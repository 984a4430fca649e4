"""Array, Column, Table and Bytes: the objects that a client opens."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union, cast, overload

from . import _convert, _cudf, _fetch, _floats, _frames, _gpu, _series, _values
from ._buffers import AsBytes, Buffers, Exchange, Validity
from ._held import Parts, Rows
from ._layout import CPU, CUDA, DATA, MASK, OFFSETS, ROCM, called, index_of
from .cuda import handle_or_zero

if TYPE_CHECKING:
    import numpy
    import pandas


class _Sequence(Exchange, Parts):
    """The base of Array, Column and Bytes."""

    __slots__ = ()

    def __len__(self) -> int:
        if not self._shape:
            raise TypeError("len() of a scalar")
        return self._length

    @property
    def shape(self) -> Tuple[int, ...]:
        """The shape, in elements."""
        return self._shape

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def buffers(self) -> Buffers:
        """The memory itself: elements, bitmap of nulls, offsets."""
        return Buffers(self)

    def _validity(self) -> Optional[Validity]:
        bits = self._buffer(MASK)
        return None if bits is None else Validity(bits, self._offset, self.size, self._shape)

    def _no_nulls(self, what: str) -> None:
        if self._has_mask and self._null_count != 0:
            raise BufferError(
                f"{called(self)} has nulls, for which {what} has no place: "
                "use .buffers, or Arrow"
            )

    def __dlpack_device__(self) -> Tuple[int, int]:
        return (CPU, 0) if self._ordinal < 0 else (ROCM if self.device.startswith("HIP-") else CUDA, self._ordinal)

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        if self._ordinal >= 0:
            raise TypeError(f"{called(self)} is on a GPU: copy_to_host() makes a NumPy array of it")
        array = self.to_numpy()
        return _values.as_asked(array, dtype, copy, not array.flags.writeable)

    def to_numpy(self, *, fill: Any = None, masked: bool = False) -> "numpy.ndarray[Any, Any]":
        """Return a NumPy array: numbers, dates and times without nulls are read-only, over the same memory.

        Nulls become NaN or NaT in a copy of floats or times. Other types with nulls raise ValueError unless you pass
        `fill`, the value in place of a null, or masked=True for a numpy.ma.MaskedArray. Strings and nested columns
        become an array of Python objects, with None for nulls. Host only.
        """
        numbers = self._plain_numbers() if fill is None and not masked else None
        if numbers is not None:
            return _values.numpy_module().asarray(numbers)  # in a third of the time of what follows
        self._check_alive()
        return self._note_written(_values.to_numpy(self, fill, masked))

    def tolist(self) -> List[Any]:
        """Return a list of Python values, None for nulls. Host only."""
        return _values.to_list(self)

    def copy_to_host(self, stream: Any = None) -> "numpy.ndarray[Any, Any]":
        """Return a new, writable NumPy array with a copy of the elements, from a GPU or the host.

        With a `stream` (a CUDA stream or its handle) the copy is queued there, and is complete when the stream is
        done. The value under a null is undefined. Strings and nested columns become an array of Python objects, with
        None for nulls; with a stream they raise BufferError.
        """
        return _fetch.copy_to_host(self, None if stream is None else handle_or_zero(stream))

    def _for_gpu(self, library: str, advice: str) -> None:
        """TypeError, BufferError: a library that is for GPUs alone does not take the object."""
        if self._ordinal < 0:
            raise TypeError(f"{called(self)} is on the host: {advice}")
        self._no_nulls(library)

    def to_cupy(self) -> Any:
        """Return a CuPy array over the same memory; of floats of 8 bits and fewer the bytes. GPU only."""
        import cupy

        self._for_gpu("CuPy", "cupy.asarray(a.to_numpy()) makes a copy on the GPU")
        return cupy.asarray(AsBytes(self) if self._dtype in _floats.SMALL else self)

    def to_numba(self) -> Any:
        """Return a numba device array over the same memory. GPU only."""
        import numba.cuda

        self._for_gpu("numba", "numba.cuda.to_device(a.to_numpy()) makes a copy")
        return numba.cuda.as_cuda_array(self)

    def to_cuda_core(self) -> Any:
        """Return a cuda.core Buffer over the same memory. Do not write to it. GPU only.

        The Buffer holds the lease. The call waits for the producer's work, since a Buffer has no event to wait for.
        """
        from cuda.core import Buffer

        self._for_gpu("cuda.core", "a cuda.core Buffer is for objects on a GPU")
        self._wait_ready(0)
        view = self._view()
        return Buffer.from_handle(view.pointer if view.nbytes else 0, view.nbytes, owner=view)

    def __iter__(self) -> Iterator[Any]:
        rows: Any = self.tolist() if self.ndim == 1 else self.to_numpy()
        return iter(rows)

    # ---- comparing and computing, as NumPy does it ----

    def _instead(self, name: str) -> str:
        if self._ordinal >= 0:
            return ": take to_cupy() or to_host()"
        return ": take to_numpy()" if self.ndim > 1 else ": take to_numpy(), to_pandas() or pyarrow.array(…)"

    def _operand(self) -> Any:
        if self._ordinal >= 0:
            raise TypeError(
                f"{called(self)} is on a GPU, and gpubufd computes on the host alone: take to_cupy(), or copy_to_host()"
            )
        return self.to_numpy()

    __hash__ = object.__hash__

    if TYPE_CHECKING:

        def _computed(self, *others: Any) -> Any: ...

        __lt__ = __le__ = __gt__ = __ge__ = __neg__ = __pos__ = __abs__ = __invert__ = __divmod__ = __rdivmod__ = _computed
        __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = __matmul__ = _computed
        __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = __rpow__ = __rmatmul__ = _computed
        __and__ = __or__ = __xor__ = __rand__ = __ror__ = __rxor__ = _computed
        __lshift__ = __rshift__ = __rlshift__ = __rrshift__ = _computed


def _operator(name: str) -> Callable[..., Any]:
    def apply(self: _Sequence, *others: Any) -> Any:
        others = tuple(o._operand() if isinstance(o, _Sequence) else o for o in others)
        array = self._operand()
        return getattr(type(array), name)(array, *others)

    apply.__name__ = name
    apply.__doc__ = f"NumPy's {name} of to_numpy(): a new array. Host only."
    return apply


_BINARY = "add sub mul truediv floordiv mod pow and or xor lshift rshift matmul".split()
for _name in (
    "eq ne lt le gt ge neg pos abs invert int float complex divmod rdivmod".split()
    + _BINARY + ["r" + name for name in _BINARY]
):
    setattr(_Sequence, f"__{_name}__", _operator(f"__{_name}__"))


class _OfNumpy:
    """An attribute that is NumPy's of to_numpy(), such as a method that changes nothing. Objects on a GPU lack it."""

    def __set_name__(self, owner: Any, name: str) -> None:
        self.name = name
        self.__doc__ = f"NumPy's {name} of to_numpy(). Host only."

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        if instance._ordinal >= 0:
            raise AttributeError(f"{called(instance)} is on a GPU, and has no {self.name!r}: take to_cupy() or to_host()")
        return getattr(instance.to_numpy(), self.name)


def _of_numpy(count: int) -> Any:
    return [_OfNumpy() for _ in range(count)]


class _Elements(_Sequence, Rows):
    """The base of Array and Column."""

    __slots__ = ()

    T, real, imag, flat = _of_numpy(4)
    all, any, sum, prod, mean, std, var, min, max, argmin, argmax, cumsum, cumprod, trace = _of_numpy(14)
    argsort, argpartition, searchsorted, nonzero, take, compress, choose, repeat, diagonal, item = _of_numpy(10)
    astype, view, copy, tobytes, reshape, ravel, flatten, squeeze, transpose, swapaxes = _of_numpy(10)
    dot, clip, round, conj, conjugate = _of_numpy(5)

    @property
    def null_count(self) -> int:
        """The number of nulls; -1: not counted, on a GPU."""
        return self._null_count

    def to_jax(self) -> Any:
        """Return a JAX array over the same memory."""
        import jax.dlpack

        return jax.dlpack.from_dlpack(self)

    def to_cudf(self) -> Any:
        """Return a cuDF Series over the same memory, except for types that PYTHON-TYPES.md lists as copied. GPU only.
        """
        return _cudf.series(self, _gpu.opened(self, "cudf.from_pandas(x.to_pandas()) copies it to a GPU"))

    def to_pandas(self) -> "pandas.Series":
        """Return a pandas Series; numbers without nulls are over the same memory. Host only."""
        return _series.to_series(self)

    # ---- while it is being written ----

    def write(self, values: Any, *, offset: int = 0, stream: Any = None) -> None:
        """Copy contiguous `values` into an unsealed object, from element `offset` on.

        `values`: a NumPy array, a buffer, or GPU memory (`__cuda_array_interface__`). With a CUDA `stream` the copy is
        queued there; keep `values` until the stream is done.
        """
        self._check_alive()
        _convert.write(self, values, offset, None if stream is None else handle_or_zero(stream))

    def seal(self, null_count: Optional[int] = None, *, stream: Any = None) -> None:
        """Publish an object that create() made. It is then read-only, like an object of get().

        With a CUDA `stream` the call does not wait for the work queued there; readers' streams do.
        """
        counts = None if null_count is None else (null_count,)
        self._publish(counts, handle_or_zero(stream))


class Array(_Elements):
    """An n-dimensional array in C order, published or being written.

    Shapes are in elements, strides and sizes in bytes.
    """

    __slots__ = ()

    @property
    def dtype(self) -> Any:
        """A numpy.dtype; the type's name if NumPy has none (bfloat16 or float8 without ml_dtypes)."""
        return _values.numpy_dtype(self)

    @property
    def strides(self) -> Tuple[int, ...]:
        """The step along each axis, in bytes."""
        return self._strides

    @property
    def nbytes(self) -> int:
        """The size of all elements, in bytes."""
        return self._view().nbytes

    @property
    def itemsize(self) -> int:
        """The size of an element, in bytes; 1 for packed elements (float4_e2m1fn)."""
        return self._view().itemsize

    @overload
    def __getitem__(self, key: slice) -> "Array": ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        """A slice of the first axis (an Array, nothing copied); for any other key NumPy's result."""
        shape = self._shape
        if isinstance(key, slice) and shape:
            return self._range(key, shape[0])
        if len(shape) == 1 and _is_index(key):
            return _fetch.elements(self, index_of(key, shape[0]), 1)[0]
        if self._ordinal >= 0:
            raise TypeError(
                f"{key!r}: an Array on a GPU takes slices of its first axis; "
                "for any other key use to_cupy() or copy_to_host()"
            )
        if self._dtype in _floats.FOREIGN and isinstance(key, tuple) and len(key) == len(shape):
            if not self._has_mask and all(map(_is_index, key)):  # without NumPy, which may lack the dtype
                return _floats.element(self._view(), tuple(map(index_of, key, shape)))
        return self.to_numpy()[_as_key(key)]

    def _check_arrow(self) -> None:
        if self._dtype.startswith(("timestamp", "duration")) and self._ordinal < 0:
            view = memoryview(self._view())
            if view.nbytes and self.ndim == 1:
                if _values.has_nat(self._view()):
                    raise ValueError(
                        f"{called(self)} has NaT, which Arrow would take for a time: publish it as a "
                        'column instead, put(name, {"x": array})'
                    )

    def _count(self) -> int:
        return self._shape[0] if self._shape else 0


class Column(_Elements):
    """An Arrow column: elements of one type, with or without nulls."""

    __slots__ = ()

    @property
    def dtype(self) -> str:
        """The type of the elements, such as "float64", "timestamp[us]", "dictionary"."""
        return self._dtype

    @property
    def nbytes(self) -> int:
        """The size of its buffers, in bytes, children included; a slice counts the whole buffers."""
        return _bytes_of(self)

    @property
    def children(self) -> "List[Column]":
        """The columns of a nested column: items, fields, or the indices and values of a dictionary."""
        return [self._child(i) for i in range(self._child_count)]

    @overload
    def __getitem__(self, key: Union[slice, str]) -> "Column": ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        """A slice (a Column, nothing copied), a field of a struct by name, or a value (None: null).

        With a list or an array of numbers or booleans: NumPy's selection of to_numpy(), a copy.
        """
        if isinstance(key, slice):
            return self._range(key, self._length)
        if isinstance(key, str):
            return self._column(key)
        if _is_index(key):
            return _fetch.to_list(self._slice(index_of(key, self._length), 1))[0]
        return self._operand()[_as_key(key)]


class Bytes(_Sequence):
    """Bytes: a sequence of integers from 0 to 255."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self._length

    @property
    def dtype(self) -> str:
        """Always "uint8"."""
        return "uint8"

    def tobytes(self) -> bytes:
        """Return a copy of the content. Host only."""
        return bytes(self)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the content as text, such as a str that was put. Host only."""
        return str(self.tobytes(), encoding, errors)

    def __eq__(self, other: object) -> Any:
        """With bytes and the like, or a str: whether the content is the same. Else NumPy's comparison, element by element."""
        if isinstance(other, str):
            other = other.encode()
        if isinstance(other, (bytes, bytearray, memoryview, Bytes)):
            return self is other or memoryview(self._operand()) == memoryview(cast(Any, other))
        return self._operand() == other

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return not equal if isinstance(equal, bool) else ~equal

    def __bool__(self) -> bool:
        """Whether there are any bytes."""
        return self._length > 0

    __hash__ = object.__hash__

    @overload
    def __getitem__(self, key: slice) -> "Bytes": ...

    @overload
    def __getitem__(self, key: int) -> int: ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._range(key, self._length)
        if not _is_index(key):
            return self._operand()[_as_key(key)]
        if self._ordinal >= 0:
            return int(self._slice(index_of(key, self._length), 1).copy_to_host()[0])
        whole: Any = self
        return memoryview(whole)[index_of(key, self._length)]


class Table(Rows):
    """Columns of equal length, by name. `len(t)` counts rows."""

    __slots__ = ()

    @property
    def names(self) -> List[str]:
        """The columns' names, in order."""
        return self._child_names

    @property
    def shape(self) -> Tuple[int, int]:
        """(rows, columns)."""
        return self._length, self._child_count

    @property
    def nbytes(self) -> int:
        """The size of all buffers of its columns, in bytes; a slice counts the whole buffers."""
        return sum(column.nbytes for column in self._children())

    @property
    def dtypes(self) -> Dict[str, str]:
        """The columns' types by name, such as "float64"."""
        return {name: column.dtype for name, column in self.items()}

    @property
    def schema(self) -> Any:
        """A pyarrow.Schema."""
        try:
            import pyarrow
        except ImportError:
            raise AttributeError("schema is a pyarrow.Schema, and pyarrow is not installed: see dtypes") from None
        return pyarrow.schema(self)

    def _children(self) -> List[Column]:
        return [self._child(i) for i in range(self._child_count)]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[str]:
        """The columns' names, as those of a frame or a dict."""
        return iter(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def keys(self) -> List[str]:
        """Return the columns' names, in order."""
        return self.names

    def values(self) -> List[Column]:
        """Return the columns, in order."""
        return self._children()

    def items(self) -> List[Tuple[str, Column]]:
        """Return (name, column) for each column, in order."""
        return list(zip(self.names, self._children()))

    def _instead(self, name: str) -> str:
        if name == "columns":
            return ": it is a mapping of columns itself, and table.names has the columns' names"
        if name in self.names:
            return f": a column is taken by its name in brackets, table[{name!r}]"
        if self._ordinal >= 0:
            return ", and computes nothing: take to_cudf() or to_host()"
        return ", and computes nothing: take to_pandas(), to_pyarrow() or polars.DataFrame(table)"

    def __array__(self, dtype: Any = None, copy: Optional[bool] = None) -> Any:
        raise TypeError(
            "a Table is no single array, which would lose the columns' names and types: "
            "to_pandas() makes a DataFrame, to_numpy() a dict of arrays, table[NAME] is one column"
        )

    def __dataframe__(self, nan_as_null: bool = False, allow_copy: bool = True) -> Any:
        """The dataframe interchange protocol, by pyarrow or pandas, whichever is installed."""
        try:
            return self.to_pyarrow().__dataframe__(nan_as_null, allow_copy)
        except ImportError:
            return self.to_pandas().__dataframe__(nan_as_null, allow_copy)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        raise TypeError("two tables are compared by their columns, or as frames: to_pandas().equals(…)")

    __hash__ = object.__hash__

    @overload
    def __getitem__(self, key: Union[str, int]) -> Column: ...

    @overload
    def __getitem__(self, key: Union[slice, List[str], Tuple[str, ...]]) -> "Table": ...

    def __getitem__(self, key: Any) -> Any:
        """A column by name or number; a Table of some columns or of a range of rows. Nothing is copied.

        `t["price"]`, `t[0]`, `t[["day", "price"]]`, `t[100:200]`.
        """
        if isinstance(key, str):
            try:
                return self._column(key)
            except KeyError as error:
                error.args = (f"there is no column {key!r}; there are {', '.join(self.names)}",)
                raise
        if isinstance(key, slice):
            return self._range(key, self._length)
        if _is_index(key):
            return self._child(index_of(key, self._child_count))
        if isinstance(key, (list, tuple)) and all(isinstance(name, str) for name in key):
            return self.select(*key)
        if isinstance(key, (list, tuple, bool, _Sequence)) or hasattr(key, "dtype"):
            raise TypeError(
                "a Table selects no single rows, which would be a copy: use to_pandas()[rows], "
                "to_pyarrow().filter(rows) or .take(rows); a range of rows is table[start:stop]"
            )
        raise TypeError(f"{key!r}: expected a column's name or number, a list of names, or a range of rows")

    def select(self, *names: Union[str, Sequence[str]]) -> "Table":
        """Return a Table of the named columns, in that order, without a copy. KeyError.

        `names`: names, or lists of names.
        """
        chosen = [name for one in names for name in ([one] if isinstance(one, str) else one)]
        try:
            return self._select(tuple(chosen))
        except KeyError as error:
            missing = [name for name in chosen if name not in self.names]
            error.args = (f"there is no column {missing[0]!r}; there are {', '.join(self.names)}",)
            raise

    def to_pandas(self) -> "pandas.DataFrame":
        """Return a DataFrame with the index that was put; numbers without nulls are over the same memory. Host only."""
        return _frames.to_frame(self)

    def to_numpy(self) -> "Dict[str, numpy.ndarray[Any, Any]]":
        """Return a dict of NumPy arrays, one for each column: Column.to_numpy(). Host only."""
        return {name: self[name].to_numpy() for name in self.names}

    def tolist(self) -> List[Dict[str, Any]]:
        """Return a list of dicts, one for each row. Host only."""
        names = self.names
        return [dict(zip(names, row)) for row in zip(*(column.tolist() for column in self._children()))]

    def to_cudf(self) -> Any:
        """Return a cuDF DataFrame over the same memory, with the index that was put. GPU only.

        Its columns are those of Column.to_cudf().
        """
        return _cudf.frame(self, _gpu.opened(self, "cudf.from_pandas(t.to_pandas()) copies it to a GPU"))

    def seal(self, null_counts: Optional[Sequence[int]] = None, *, stream: Any = None) -> None:
        """Publish a table that create() made; `null_counts`, if given, has one count for each column."""
        counts = None if null_counts is None else tuple(null_counts)
        self._publish(counts, handle_or_zero(stream))


def _is_index(key: Any) -> bool:
    """Whether a key is one number. Python's and NumPy's True and False are none, or they would be 1 and 0."""
    dtype = getattr(key, "dtype", None)
    is_bool = isinstance(key, bool) or getattr(dtype, "kind", "") == "b"
    return not is_bool and hasattr(key, "__index__") and not getattr(key, "shape", ())


def _as_key(key: Any) -> Any:
    return key._operand() if isinstance(key, _Sequence) else key


def _bytes_of(column: Any) -> int:
    own = (column._buffer(which) for which in (DATA, MASK, OFFSETS))
    return sum(b.nbytes for b in own if b is not None) + sum(_bytes_of(c) for c in column.children)
