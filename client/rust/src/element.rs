/// A Rust type that elements of some dtypes can be read and written as.
///
/// # Safety
/// Every pattern of bits is a value of the type, and for each dtype for which `fits` is true an
/// element has the type's size.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The dtype that such values are published as.
    const DTYPE: &'static str;
    /// Whether elements of `dtype`, in the protocol's spelling, are such values.
    fn fits(dtype: &str) -> bool;
}

macro_rules! elements {
    ($($type:ty: $name:literal $(, $other:literal)*;)*) => {$(
        unsafe impl Element for $type {
            const DTYPE: &'static str = $name;
            fn fits(dtype: &str) -> bool {
                dtype == $name $(|| dtype.strip_prefix($other)
                    .map_or(false, |rest| rest.is_empty() || rest.starts_with('[')))*
            }
        }
    )*};
}

elements! {
    i8: "int8";
    i16: "int16";
    i32: "int32", "date32", "time32", "month_interval";
    i64: "int64", "date64", "time64", "timestamp", "duration";
    u8: "uint8", "bool8";
    u16: "uint16";
    u32: "uint32";
    u64: "uint64";
    f32: "float32";
    f64: "float64";
}
