//! The built-in machines.

/// Name and file of each, in the order of listings.
pub(super) const ALL: [(&str, &str); 9] = [
    ("xeon-6985p", include_str!("../../../machines/xeon-6985p.toml")),
    ("epyc-9b45", include_str!("../../../machines/epyc-9b45.toml")),
    ("xeon-e5440", include_str!("../../../machines/xeon-e5440.toml")),
    ("xeon-e5-2695v4", include_str!("../../../machines/xeon-e5-2695v4.toml")),
    ("kunpeng-920", include_str!("../../../machines/kunpeng-920.toml")),
    ("opteron-6128", include_str!("../../../machines/opteron-6128.toml")),
    ("server-128", include_str!("../../../machines/server-128.toml")),
    ("desktop-16", include_str!("../../../machines/desktop-16.toml")),
    ("vm-2", include_str!("../../../machines/vm-2.toml")),
];
