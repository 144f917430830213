//! How a command line is parsed.

use std::any::TypeId;
use std::path::PathBuf;

use clap::Arg;

/// Lets values that begin with a hyphen reach the parsers of times, rates and counts, in all subcommands. Their errors
/// explain what is wrong with `-5s`; clap alone takes such a value for an option.
pub fn hyphens(command: clap::Command) -> clap::Command {
    command.mut_subcommands(hyphens).mut_args(|arg| {
        let passed = is_parsed(&arg) || arg.is_allow_hyphen_values_set();
        arg.allow_hyphen_values(passed)
    })
}

/// Returns whether the argument is an option whose value is neither a string nor a path.
fn is_parsed(arg: &Arg) -> bool {
    let of = arg.get_value_parser().type_id();
    let named = of == TypeId::of::<String>() || of == TypeId::of::<PathBuf>();
    !arg.is_positional() && arg.get_action().takes_values() && !named
}
