//! The sum of a column of `f64` that another process published, taken in place.
//!
//!     cargo run --example summary -- movies rating

use std::process::ExitCode;

use gpubuf::{Client, Result};

fn sum(table: &str, column: &str) -> Result<f64> {
    let column = Client::connect()?.open(table)?.column(column)?;
    // SAFETY: what is sealed is not written to by this program's users.
    let values: &[f64] = unsafe { column.values()? };
    let valid = (0..).map(|i| column.is_valid(i));
    Ok(values.iter().zip(valid).filter(|(_, valid)| *valid).map(|(value, _)| value).sum())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (table, column) = if let [table, column] = &words[..] {
        (table, column)
    } else {
        eprintln!("usage: summary TABLE COLUMN");
        return ExitCode::from(2);
    };
    match sum(table, column) {
        Ok(sum) => {
            println!("{sum}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("summary: {error}");
            ExitCode::FAILURE
        }
    }
}
