//! `eprint!` and `eprintln!` for programs that outlive their terminal: as those of std, except that a stderr which is closed
//! does not end the program.

macro_rules! eprint {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // Nobody reads it.
        let _ = write!(std::io::stderr(), $($text)*);
    }};
}

macro_rules! eprintln {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        // In one piece, so that lines of several threads do not mix.
        let _ = std::io::stderr().write_all(format!("{}\n", format_args!($($text)*)).as_bytes());
    }};
}
