//! Abbreviated words of filters and actions, and the combinations of `police` with `action`. The expected meanings are those of tc 6.1
//! with Linux.

use super::tests::Bench;
use super::*;

fn shown(rule: &str) -> String {
    let mut bench = Bench::new();
    bench.filters = Filters::for_hook();
    let indexes = bench.indexes.clone();
    let mut request =
        Request::parse(rule).unwrap_or_else(|error| panic!("{rule}: {error}")).numbered(&indexes);
    request.bind(|_| Ok(1)).unwrap();
    bench
        .filters
        .set(&request, Handle::HOOK_EGRESS, Mode::Add)
        .unwrap_or_else(|error| panic!("{rule}: {error}"));
    filters_text(&bench.filters.info(None, Style::default()), false)
}

#[test]
fn a_beginning_of_a_word_means_the_first_word_that_has_it() {
    for (short, long) in [
        (
            "prot ip pri 1 u32 ma ip dport 53 0xffff cl 1:1",
            "protocol ip pref 1 u32 match ip dport 53 0xffff classid 1:1",
        ),
        (
            "proto ip pre 1 ch 0 u32 m u 53 0xffffffff at 0 c 1:1",
            "protocol ip pref 1 u32 match u32 53 0xffffffff at 0 classid 1:1",
        ),
        (
            "pro ip p 1 e 1s 8s u32 m i p 0x10 0xff c 1:1",
            "protocol ip pref 1 u32 match ip precedence 0x10 0xff classid 1:1",
        ),
        (
            "prot ip p 1 u32 m ud dst 53 0xffff or 5 c 1:1",
            "protocol ip pref 1 u32 match udp dst 53 0xffff order 5 classid 1:1",
        ),
        (
            "prot ip p 1 u32 m t dst 53 0xffff m ic type 1 0xff m ma 1 1 m e src 02:00:00:00:00:01 c 1:1",
            "protocol ip pref 1 u32 match tcp dst 53 0xffff match icmp type 1 0xff match mark 1 1 match ether src 02:00:00:00:00:01 classid 1:1",
        ),
        ("prot ip p 1 handle 5 fw c 1:1 po ra", ""),
        ("prot ip p 1 handle 5 fw f 1:1", "protocol ip pref 1 handle 5 fw flowid 1:1"),
        ("prot ip p 1 matchall c 1:1 a dr", "protocol ip pref 1 matchall classid 1:1 action drop"),
        (
            "prot ip p 1 basic m u32(u32 0 0 at 0) c 1:1",
            "protocol ip pref 1 basic match u32(u32 0 0 at 0) classid 1:1",
        ),
        ("prot ip p 1 flow h k s,d,p,pri,r di 4 b 1:1", ""),
        (
            "prot ip p 1 handle 1 flow h k s,d,p,pri di 4 b 1:1",
            "protocol ip pref 1 handle 1 flow hash keys src,dst,proto,priority divisor 4 baseclass 1:1",
        ),
        (
            "prot ip p 1 handle 1 flow ma ke v a 0xf r 1 ad 2 b 1:1",
            "protocol ip pref 1 handle 1 flow map key vlan-tag and 0xf rshift 1 addend 2 baseclass 1:1",
        ),
        (
            "prot ip p 1 flower d 02:00:00:00:00:01 sr 02:00:00:00:00:02 ip_p u dst_p 53 src_i 192.0.2.1 c 1:1",
            "protocol ip pref 1 flower dst_mac 02:00:00:00:00:01 src_mac 02:00:00:00:00:02 ip_proto udp dst_port 53 src_ip 192.0.2.1 classid 1:1",
        ),
        (
            "prot 802.1Q p 1 flower vl 5 vlan_p 3 vlan_e ip ip_t 8 i frag f 1:1",
            "protocol 802.1Q pref 1 flower vlan_id 5 vlan_prio 3 vlan_ethtype ip ip_tos 8 ip_flags frag flowid 1:1",
        ),
        (
            "prot arp p 1 flower arp_s 192.0.2.1 a 192.0.2.2 arp_o reply",
            "protocol arp pref 1 flower arp_sip 192.0.2.1 arp_tip 192.0.2.2 arp_op reply",
        ),
        (
            "p 1 matchall a police rate 1mbit b 10k ov 4 li at d i 5",
            "pref 1 matchall action police rate 1mbit burst 10k overhead 4 linklayer atm drop index 5",
        ),
        (
            "p 1 matchall a police pk 1000 pkts_b 10 conform-exceed d/pi",
            "pref 1 matchall action police pkts_rate 1000 pkts_burst 10 conform-exceed drop/pipe",
        ),
        (
            "p 1 matchall a skbedit q 3 p 1:2 m 5 i pi ind 7",
            "pref 1 matchall action skbedit queue_mapping 3 priority 1:2 mark 5 inheritdsfield pipe index 7",
        ),
        (
            "p 1 matchall a mirred e mirror de d4 pi action p c 1:1",
            "pref 1 matchall action mirred egress mirror dev d4 pipe action pass classid 1:1",
        ),
        ("p 1 matchall a gact rec i 4 c 1:1", "pref 1 matchall action gact reclassify index 4 classid 1:1"),
        ("p 1 matchall a sh i 4", "pref 1 matchall action drop index 4"),
    ] {
        match long {
            // tc refuses these.
            "" => assert!(Request::parse(short).is_err(), "{short}"),
            _ => assert_eq!(shown(short), shown(long), "{short}"),
        }
    }
}

/// tc compares these words whole.
#[test]
fn other_words_stay_exact() {
    for rule in [
        "protocol ip pref 1 u32 match ip dpo 53 0xffff",
        "protocol ip pref 1 u32 match ip proto 6 0xff",
        "protocol ip pref 1 u32 match ip firstf",
        "protocol ip pref 1 u32 match udp ds 53 0xffff",
        "protocol ip pref 1 u32 match u8 0 0 li 1:",
        "protocol ip pref 1 u32 match u8 0 0 flow 1:1",
        "pref 1 matchall flow 1:1",
        "protocol ip pref 1 basic flow 1:1",
        "protocol arp pref 1 flower arp_op rep",
        "protocol ip pref 1 flower ip_flags fra",
        "pref 1 matchall action police ra 1mbit burst 10k",
        "pref 1 matchall action police rate 1mbit buf 10k",
        "pref 1 matchall action police rate 1mbit burst 10k conform drop",
        "pref 1 matchall action pol rate 1mbit burst 10k",
        "pref 1 matchall action mirred egress redir dev d1",
        "pref 1 matchall action pass act drop",
        "han 5 fw classid 1:1",
        "par 1: matchall",
    ] {
        assert!(Request::parse(rule).is_err() || Request::parse(rule).unwrap().rule.is_none(), "{rule}");
    }
}

#[test]
fn the_first_fragment_has_a_flag_and_no_offset() {
    let text = shown("protocol ip pref 1 u32 match ip firstfrag flowid 1:14");
    assert!(text.ends_with("\n  match 00002000/00003fff at 4\n"), "{text}");
}

/// The kernel uses the policer alone where a rule has both (`tcf_exts_validate`).
#[test]
fn police_stays_beside_an_action() {
    const POLICE: &str = "police rate 1mbit burst 10k drop";
    for head in [
        "protocol ip pref 2 u32 match ip dst 192.0.2.0/24",
        "protocol ip pref 2 handle 5 fw",
        "protocol ip pref 2 basic",
        "protocol ip pref 2 handle 1 flow hash keys src divisor 4",
    ] {
        let alone = shown(&format!("{head} {POLICE}"));
        assert!(alone.contains(" police 0x1 rate 1Mbit burst 10Kb"), "{alone}");
        for rest in ["POLICE action pass", "POLICE action drop", "action pass classid 1:5 POLICE"] {
            // flow has no class that ends a list of actions.
            if head.contains(" flow ") && rest.contains("classid") {
                continue;
            }
            let rule = format!("{head} {}", rest.replace("POLICE", POLICE));
            let text = shown(&rule);
            assert_eq!(police(&text), police(&alone), "{rule}");
            assert!(!text.contains("gact"), "{rule}: {text}");
        }
        // Of two policers or two lists, the last one holds.
        let text = shown(&format!("{head} police rate 2mbit burst 10k drop {POLICE}"));
        assert_eq!(police(&text), police(&alone));
    }
    let text = shown("pref 2 matchall action drop classid 1:5 action pass");
    assert!(text.contains("gact action pass") && !text.contains("gact action drop"), "{text}");
    for kind in ["matchall", "flower"] {
        assert!(
            Request::parse(&format!("pref 1 {kind} {POLICE}")).is_err(),
            "{kind} has no police of its own"
        );
    }
}

/// Returns the text of the policer.
fn police(text: &str) -> &str {
    let at = text.find("police").unwrap_or_else(|| panic!("there is no police: {text}"));
    &text[at..]
}
