//! What awaiting costs a sender that need not wait: the same packets by direct calls and from a task on tokio, in turns.
//!
//! `cargo run --release -p txq-device --example async_speed [ROUNDS]`

use std::error::Error;

use tokio::runtime;
use txq::packet::PacketList;
use txq::{NetDev, Sender};
use txq_device::Null;

mod speed;

use speed::Speed;

/// Packets of a measurement, and the length of each in bytes.
const PACKETS: u64 = 2_000_000;
const LEN: usize = 120;
const BATCHES: [u64; 2] = [1, 32];

fn direct(sender: &mut Sender, batch: u64) -> Result<(), Box<dyn Error>> {
    let mut list = PacketList::new();
    for _ in 0..PACKETS / batch {
        if batch == 1 {
            let packet = sender.alloc(LEN)?;
            let _verdict = sender.xmit(packet);
        } else {
            sender.alloc_batch(batch as usize, LEN, &mut list)?;
            let _verdict = sender.xmit_batch(&mut list);
        }
    }
    Ok(())
}

async fn awaited(sender: &mut Sender, batch: u64) -> Result<(), Box<dyn Error>> {
    let mut list = PacketList::new();
    for _ in 0..PACKETS / batch {
        if batch == 1 {
            let packet = sender.buffer(LEN).await?;
            let _verdict = sender.send(packet).await.map_err(|error| error.to_string())?;
        } else {
            // Buffers one by one only if there are too few at once.
            if sender.alloc_batch(batch as usize, LEN, &mut list).is_err() {
                list.push_back(sender.buffer(LEN).await?);
            }
            let _verdict = sender.send_batch(&mut list).await?;
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(7), |rounds| rounds.parse())?;
    let runtime = runtime::Builder::new_current_thread().build()?;
    println!("medians of {rounds} rounds, packets of {LEN} bytes through pfifo into the null device");
    println!("batch  direct ns  awaited ns  ratio");
    for batch in BATCHES {
        let dev = NetDev::builder(Null::new(1)).qdisc("pfifo limit 1000").start()?;
        let mut sender = dev.sender("sender");
        let (mut calls, mut tasks) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let mut failed = None;
            calls.push(Speed::measure(|| {
                failed = direct(&mut sender, batch).err();
                PACKETS
            }));
            tasks.push(Speed::measure(|| {
                failed = failed.take().or(runtime.block_on(awaited(&mut sender, batch)).err());
                PACKETS
            }));
            failed.map_or(Ok(()), Err)?;
        }
        let (calls, tasks) = (Speed::median(&calls).cost, Speed::median(&tasks).cost);
        println!("{batch:5}  {calls:9.1}  {tasks:10.1}  {:5.2}", tasks / calls);
    }
    Ok(())
}
