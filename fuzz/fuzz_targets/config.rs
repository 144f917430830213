//! The configuration file: any text is devices that can be opened, or one error with its file that `txq check` can print.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = txq_cli::check_config("file.toml", text) {
        assert!(error.starts_with("file.toml"), "an error that names no file: {error:?}");
        assert!(!error.contains('\n'), "an error of several lines: {error:?}");
    }
});
