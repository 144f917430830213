//! One suite for all devices: what a driver must do, whatever it drives.
//!
//! A device joins by a [`Wire`](wire::Wire), which opens it and collects what arrives at its other end.

#[allow(dead_code, reason = "shared with tests that need more of it")]
mod support;

mod cases;
mod datagrams;
mod traffic;
mod wire;

/// Makes a test of each case for a device.
macro_rules! suite {
    ($device:ident: $($case:ident)+) => {
        mod $device {
            $(
                #[test]
                fn $case() {
                    let test = concat!(stringify!($device), "::", stringify!($case));
                    if let Some(mut wire) = crate::wire::$device(test) {
                        crate::cases::$case(&mut *wire);
                    }
                }
            )+
        }
    };
}

macro_rules! devices {
    ($($device:ident)+) => {
        $(suite! {
            $device:
            every_packet_arrives_byte_for_byte
            batches_may_have_any_size
            each_flow_of_many_senders_keeps_its_order
            two_txqs_send
            eight_txqs_send
            every_discipline_feeds_it
            every_qdisc_feeds_it
            completions_may_go_to_the_worker_or_to_queues
            short_packets_do_no_harm
            a_packet_that_is_too_long_is_dropped_alone
            packets_with_segments_arrive
            checksums_are_filled_in
            a_small_limit_is_enough
            packets_of_another_pool_are_sent
            what_is_refused_is_sent_later
            a_panic_in_its_driver_harms_only_the_packets_of_the_call
            dropped_in_flight_it_returns_every_buffer
            it_opens_again
            two_drivers_may_be_open
            departure_times_are_kept
            a_link_may_go_down_and_come_back
            a_device_that_is_removed_says_so
        })+
    };
}

devices! { null pcap pcap_ip af_packet af_packet_gso af_xdp tun tap udp }
