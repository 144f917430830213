//! Nothing: Cargo fetches the dependencies of a package.
