//! One way through a link in words: the texts of `--up` and `--down`, and the presets and files of `--preset`.

use std::fs;
use std::io::ErrorKind;

use anyhow::{Context, bail, ensure};
use txq_control::tc;
use txq_link::presets;

use super::Device;

/// What the two ways of a link are called in a file.
const WAYS: [&str; 2] = ["up", "down"];

/// The texts of both ways, of which either may be left out.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Ways {
    pub(crate) up: Option<String>,
    pub(crate) down: Option<String>,
}

impl Ways {
    /// Returns the texts of a preset, if one is given by its name or as a file, with those of the command line in their place.
    pub(crate) fn of(
        preset: Option<&str>,
        up: Option<&String>,
        down: Option<&String>,
    ) -> anyhow::Result<Self> {
        let preset = preset.map(Self::read).transpose()?.unwrap_or_default();
        let ways = Self { up: up.cloned().or(preset.up), down: down.cloned().or(preset.down) };
        for way in [&ways.up, &ways.down].into_iter().flatten() {
            way.split('|').flat_map(tc::warnings).for_each(|warning| eprintln!("{warning}"));
        }
        Ok(ways)
    }

    fn read(preset: &str) -> anyhow::Result<Self> {
        let place = || format!("--preset {preset}");
        if let Some(known) = presets().iter().find(|known| known.name == preset) {
            return Self::parse(known.text).with_context(place);
        }
        let text = fs::read_to_string(preset).map_err(|error| {
            let is_name = error.kind() == ErrorKind::NotFound && !preset.contains(['/', '.']);
            let names = presets().iter().map(|known| known.name).collect::<Vec<_>>().join(", ");
            let presets = if is_name { format!(", and no preset: they are {names}") } else { String::new() };
            anyhow::Error::from(error).context(format!("{} is no file{presets}", place()))
        })?;
        Self::parse(&text).with_context(place)
    }

    /// Parses a text: a line for each way, which begins with `up` or `down`, and comments.
    fn parse(text: &str) -> anyhow::Result<Self> {
        let mut ways = Self::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let way = match WAYS.iter().position(|way| *way == word) {
                Some(0) => &mut ways.up,
                Some(_) => &mut ways.down,
                None => bail!(
                    "line {number}: \"{word}\" is neither up nor down: give other commands to `txq tc` while the link runs"
                ),
            };
            ensure!(way.is_none(), "line {number}: it has a line for \"{word}\" already");
            *way = Some(rest.trim().to_owned());
        }
        Ok(ways)
    }
}

/// Gives a device the qdiscs of a way: one, or several separated by `|`, of which the last is the root, and each other one the child of the one
/// behind it.
pub(crate) fn apply(way: Option<&str>, device: &mut Device) {
    let Some((rest, root)) =
        way.map(|way| way.rsplit_once('|').map_or((None, way), |(rest, root)| (Some(rest), root)))
    else {
        return;
    };
    let Some(rest) = rest else {
        device.qdisc = Some(root.to_owned());
        return;
    };
    device.qdisc = Some(format!("handle 1: {}", root.trim()));
    let children = rest.rsplit('|').zip(1..);
    device.tc = children
        .map(|(child, parent)| format!("qdisc add parent {parent}:1 handle {}: {}", parent + 1, child.trim()))
        .collect();
}

#[cfg(test)]
mod tests {
    use clap::Args;

    use super::*;
    use crate::args::{BridgeArgs, ExecArgs, ShellArgs};

    #[test]
    fn the_last_qdisc_of_a_way_is_the_root() {
        let applied = |way: Option<&str>| {
            let mut device = Device::default();
            apply(way, &mut device);
            (device.qdisc, device.tc)
        };
        assert_eq!(applied(None), (None, vec![]));
        assert_eq!(applied(Some("cake")), (Some("cake".to_owned()), vec![]));
        let chain = applied(Some("pie | tbf rate 1mbit burst 3k latency 50ms | netem delay 5ms"));
        let below = [
            "qdisc add parent 1:1 handle 2: tbf rate 1mbit burst 3k latency 50ms",
            "qdisc add parent 2:1 handle 3: pie",
        ];
        assert_eq!(chain, (Some("handle 1: netem delay 5ms".to_owned()), below.map(str::to_owned).to_vec()));
    }

    #[test]
    fn presets_have_both_ways_and_the_command_line_counts_first() {
        for preset in presets() {
            let ways = Ways::of(Some(preset.name), None, Some(&"pfifo".to_owned())).expect(preset.name);
            assert!(ways.up.is_some_and(|up| up.starts_with("tbf ")), "{}", preset.name);
            assert_eq!(ways.down.as_deref(), Some("pfifo"));
        }
        let error = format!("{:#}", Ways::of(Some("lt"), None, None).unwrap_err());
        assert!(error.starts_with("--preset lt is no file, and no preset: they are dsl, cable, "), "{error}");
        let error = format!("{:#}", Ways::of(Some("./lte"), None, None).unwrap_err());
        assert!(error.starts_with("--preset ./lte is no file: "), "{error}");
    }

    #[test]
    fn the_help_names_all_presets() {
        let names: Vec<_> = presets().iter().map(|known| known.name).collect();
        let (last, others) = names.split_last().expect("presets");
        let list = format!("have: {} or {last};", others.join(", "));
        let all = [ShellArgs::augment_args, BridgeArgs::augment_args, ExecArgs::augment_args];
        let commands = all.map(|add| add(clap::Command::new("")));
        for command in commands {
            let option =
                command.get_arguments().find(|option| option.get_id() == "preset").expect("--preset");
            let help = option.get_help().expect("a text").to_string();
            assert!(help.contains(&list), "{list}\n{help}");
        }
    }

    #[test]
    fn a_file_has_a_line_for_each_way() {
        let ways =
            Ways::parse("# a comment\n\nup   netem delay 5ms  # here, too\ndown cake | netem\n").unwrap();
        assert_eq!(
            (ways.up.as_deref(), ways.down.as_deref()),
            (Some("netem delay 5ms"), Some("cake | netem"))
        );
        for (text, what) in
            [("at 5s up", "line 1: \"at\""), ("up a\n\nup b", "line 3: it has a line for \"up\" already")]
        {
            let error = Ways::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
