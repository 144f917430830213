//! Qdiscs, classes, filters and sysfs files of a device, beside those of the kernel and of tc. One program, because each
//! program would be compiled and linked with the whole library.

#[allow(dead_code, reason = "the tests of the path use the rest")]
#[path = "../device/mod.rs"]
mod device;
#[path = "../netns/mod.rs"]
mod netns;
#[path = "../sysfs/mod.rs"]
mod sysfs;

mod bql_kernel;
mod classes_htb;
mod classes_tc;
mod custom_qdisc;
mod filters;
mod filters_tc;
mod hooks;
mod mqprio_classes;
mod mqprio_tc;
mod nesting;
mod parts;
mod portions;
mod show_kernel;
mod words_kernel;
mod xps_mask_kernel;
