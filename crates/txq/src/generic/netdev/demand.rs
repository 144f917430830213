//! The buffers that the qdiscs of a device may need, against those of its pool.
//!
//! A packet occupies its buffer from its allocation to its completion. So qdiscs that may queue more packets than the pool
//! has buffers never reach their limits: the pool runs dry first, for all senders alike. Each sender's guarantee
//! ([`PoolConfig::reserve`](crate::pool::PoolConfig::reserve)) then still lets senders with few packets send.

use std::fmt;

use txq_core::arch::Arch;
use txq_core::pool::PoolError;
use txq_sched::generic::qdisc::Qdisc;
use txq_sched::generic::tree::max_packets;

use super::NetDev;

/// The buffers that a default pool has at least and at most.
pub(super) const DEFAULT_BUFFERS: (u32, u32) = (4096, 12_288);
/// Buffers of a default pool beyond the limits of its qdiscs: for rings, for the stocks of senders, and for the guarantees.
const SPARE_BUFFERS: u64 = 1024;

/// The packets that the qdiscs of a device may queue, and the buffers of its pool ([`NetDev::pool_demand`]). Its text says
/// what is wrong, if something is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolDemand {
    /// The device's name.
    pub device: String,
    /// Buffers of the pool.
    pub buffers: u32,
    /// Packets that the qdiscs may queue: the sum of the limits that are counted in packets.
    pub queued: u64,
    /// Qdiscs whose limit is not counted in packets. They may queue more.
    pub others: usize,
}

impl PoolDemand {
    /// Returns whether the qdiscs may queue more packets than the pool has buffers.
    pub fn is_short(&self) -> bool {
        self.queued > self.buffers.into()
    }

    /// Returns the buffers of a pool that [`NetDev::fit_pool`] fits to the qdiscs: what they may queue, and those of rings, of the
    /// stocks of senders, and of the guarantees.
    pub fn fitting(&self) -> u64 {
        self.queued.saturating_add(SPARE_BUFFERS)
    }
}

impl fmt::Display for PoolDemand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, buffers, queued, others } = self;
        write!(f, "device \"{device}\": the qdiscs may queue {queued} packets")?;
        if *others > 0 {
            write!(f, ", and those of {others} qdiscs without a limit in packets")?;
        }
        write!(f, "; the pool has {buffers} buffers")?;
        if self.is_short() {
            write!(f, ": give the pool more buffers, or the qdiscs lower limits")?;
        }
        Ok(())
    }
}

/// Returns how many packets the qdiscs may queue that have limits in packets.
pub(super) fn queued_by<A: Arch>(qdiscs: &mut [Option<Box<dyn Qdisc<A>>>]) -> u64 {
    let each = qdiscs.iter_mut().flatten().map(|qdisc| max_packets(&mut **qdisc, &mut 0));
    each.fold(0, u64::saturating_add)
}

/// Returns the size of a default pool below qdiscs that may queue `queued` packets.
pub(super) fn buffers_for(queued: u64) -> u32 {
    let (least, most) = DEFAULT_BUFFERS;
    queued.saturating_add(SPARE_BUFFERS).clamp(least.into(), most.into()) as u32
}

impl<A: Arch> NetDev<A> {
    /// Returns how many packets the qdiscs may queue, and how many buffers the pool has.
    #[inline(never)]
    pub fn pool_demand(&self) -> PoolDemand {
        self.control(|_, _| {
            let (mut queued, mut others) = (0_u64, 0);
            for root in self.shared.roots_in_force() {
                root.with_core(&self.shared, |core| {
                    queued = queued.saturating_add(
                        core.qdisc.as_deref_mut().map_or(0, |qdisc| max_packets(qdisc, &mut others)),
                    );
                });
            }
            let (device, buffers) = (self.shared.info.name.clone(), self.shared.pool.buffers());
            PoolDemand { device, buffers, queued, others }
        })
    }

    /// Grows the pool to what the qdiscs may queue, as far as
    /// [`PoolConfig::max_buffers`](crate::pool::PoolConfig::max_buffers) allows: for a program that has changed qdiscs or
    /// classes.
    #[inline(never)]
    pub fn fit_pool(&self) -> Result<PoolDemand, PoolError> {
        let demand = self.pool_demand();
        let pool = &self.shared.pool;
        let wanted = demand.fitting().min(pool.max_buffers().into()) as u32;
        if wanted > demand.buffers {
            pool.resize(wanted)?;
        }
        Ok(PoolDemand { buffers: pool.buffers(), ..demand })
    }
}
