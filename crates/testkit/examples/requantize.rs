//! Converts all matrices of a GGUF file but routers: `requantize IN TYPE OUT`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [input, ty, output] = args.as_slice() else {
        eprintln!("usage: requantize IN TYPE OUT");
        return ExitCode::from(2);
    };
    let Some(ty) = gguf::TensorType::from_name(ty) else {
        eprintln!("error: there is no type {ty:?}");
        return ExitCode::from(2);
    };
    let convert = || -> Result<f64, Box<dyn std::error::Error>> {
        let file = arclight_testkit::requantize(&std::fs::read(input)?, ty)?;
        std::fs::write(output, &file.bytes)?;
        Ok(file.bits)
    };
    match convert() {
        Ok(bits) => {
            println!("{output}: {bits:.2} bits per weight");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
