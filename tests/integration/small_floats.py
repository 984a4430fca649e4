"""The values of floats of 8, 6 and 4 bits, counted up from the smallest one and not decoded from the bits."""

import math

# dtype: (bits, bits of the mantissa, the smallest value above 0 as an exponent of 2, code of infinity,
# first code of NaN; "zero": the code of the negative zero is the one NaN). Codes are those without a sign.
ROWS = {
    "float8_e3m4": (8, 4, -6, 0x70, 0x71), "float8_e4m3": (8, 3, -9, 0x78, 0x79),
    "float8_e4m3fn": (8, 3, -9, None, 0x7f), "float8_e5m2": (8, 2, -16, 0x7c, 0x7d),
    "float8_e4m3b11fnuz": (8, 3, -13, None, "zero"), "float8_e4m3fnuz": (8, 3, -10, None, "zero"),
    "float8_e5m2fnuz": (8, 2, -17, None, "zero"), "float6_e2m3fn": (6, 3, -3, None, None),
    "float6_e3m2fn": (6, 2, -4, None, None), "float4_e2m1fn": (4, 1, -1, None, None),
}
DTYPES = [*ROWS, "float8_e8m0fnu"]


def bits_of(dtype):
    return ROWS[dtype][0] if dtype in ROWS else 8


def values(dtype):
    """The value of each code, in order."""
    if dtype not in ROWS:
        return [2.0**exponent for exponent in range(-127, 128)] + [math.nan]
    bits, mantissa, smallest, infinity, nan = ROWS[dtype]
    step, found = 2.0**smallest, [0.0]
    for code in range(1, 1 << (bits - 1)):
        found.append(found[-1] + step)
        if code >= 2 << mantissa and code % (1 << mantissa) == 0:
            step *= 2  # each run of the mantissa but the first two has steps twice as wide
    for code in range(len(found)):
        if code == infinity:
            found[code] = math.inf
        elif nan not in (None, "zero") and code >= nan:
            found[code] = math.nan
    negative = [-value for value in found]
    if nan == "zero":
        negative[0] = math.nan
    return found + negative


def packed(codes, bits):
    """Bytes in which the first code has the lowest bits of the first byte."""
    number = sum(code << (bits * i) for i, code in enumerate(codes))
    return number.to_bytes(len(codes) * bits // 8, "little")


def every_code(dtype):
    return packed(range(len(values(dtype))), bits_of(dtype))


def same(a, b):
    """Equal, NaN to NaN, and 0.0 not to -0.0."""
    return len(a) == len(b) and all(
        math.isnan(x) and math.isnan(y) or x == y and math.copysign(1, x) == math.copysign(1, y) for x, y in zip(a, b)
    )
