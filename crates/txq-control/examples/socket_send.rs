//! Sends frames through a running txq: `socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]]`.
//!
//! Each frame is an Ethernet frame of the experimental type 0x88b5, with the tag, a number that counts up from 0, and bytes that
//! follow from the number: a receiver can check every byte.

use std::error::Error;

use txq_control::socket::Client;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("use: socket_send PATH COUNT [LENGTH [PRIORITY [TAG]]]")?;
    let mut number = |default: u32| args.next().map_or(Ok(default), |text| text.parse());
    let (count, length, priority, tag) = (number(1)?, number(60)?, number(0)?, number(0)?);
    let mut client = Client::connect(path)?;
    let mut frame = vec![0; length.max(23) as usize];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[18] = tag as u8;
    for n in 0..count {
        frame[14..18].copy_from_slice(&n.to_be_bytes());
        (19..frame.len()).for_each(|at| frame[at] = (n as usize + at) as u8);
        client.send(&frame, priority)?;
    }
    println!("{count} frames");
    Ok(())
}
