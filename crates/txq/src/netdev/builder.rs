//! How a device comes about.

use std::io;
use std::sync::Arc;

use crossbeam_utils::CachePadded;
use thiserror::Error;

use super::rule::{Rule, Shape};
use super::shared::Senders;
use super::tree::{Plan, Tree, child};
use super::{NetDev, Root, Sampling, Shared};
use crate::arch::{Arch, Atomic, Native};
use crate::driver::Driver;
use crate::enqueue::{self, NoQueue, QDISC_MAX_BURST};
use crate::flow::FlowHasher;
use crate::pool::{Pool, PoolConfig, PoolError};
use crate::qdisc::{self, Built, Env, Qdisc};
use crate::run::{Core, Gate};
use crate::schedule::Schedule;
use crate::steering::Steering;
use crate::sync::rcu::Rcu;
use crate::sync::spinlock::SpinLock;
use crate::tc::ParseError;
use crate::txqueue::TxQueue;
use crate::worker::Worker;
use crate::xps::XpsMap;

/// Length of the link-layer header that a device's MTU does not count, in bytes (`hard_header_len`).
const HARD_HEADER: u32 = 14;

/// Why a device cannot be made.
#[derive(Debug, Error)]
pub enum BuildError {
    /// More txqs than the device has, or none.
    #[error("device \"{device}\" has {max} txqs, not {asked}: use 1 to {max}")]
    Txqs {
        /// The device.
        device: String,
        /// How many it has.
        max: u16,
        /// How many were asked for.
        asked: u16,
    },
    /// A qdisc's text is wrong.
    #[error("qdisc \"{text}\": {source}")]
    Qdisc {
        /// The text.
        text: String,
        /// What is wrong with it.
        source: ParseError,
    },
    /// A qdisc for a txq that has none of its own.
    #[error("qdisc \"{text}\" for txq {txq}: {why}")]
    Child {
        /// The text.
        text: String,
        /// The txq.
        txq: u16,
        /// What is wrong with it.
        why: String,
    },
    /// There is no such discipline.
    #[error("there is no enqueue discipline \"{name}\": use one of {known}")]
    Discipline {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// The map is for another number of txqs.
    #[error("the XPS map is for {map} txqs and the device has {txqs}: make it for {txqs}")]
    Xps {
        /// The map's.
        map: usize,
        /// The device's.
        txqs: u16,
    },
    /// No worker would look after the queues.
    #[error("0 workers cannot look after any queue: use at least 1")]
    Workers,
    /// The pool cannot be made.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The device does not open.
    #[error("device \"{device}\", txq {txq}: {source}")]
    Open {
        /// The device.
        device: String,
        /// The txq.
        txq: u16,
        /// What the system says.
        source: io::Error,
    },
    /// A worker's thread does not start.
    #[error("a worker thread does not start: {0}")]
    Thread(io::Error),
}

/// What a device shall be. Everything has a default: all txqs, `mq` over `pfifo_fast` (`pfifo_fast` alone with one txq),
/// the first of [`enqueue::names`], no map, a pool of 4096 packets, one worker.
pub struct Builder<A: Arch = Native> {
    driver: Box<dyn Driver<A>>,
    txqs: Option<u16>,
    qdisc: Option<String>,
    custom_qdisc: Option<Box<dyn Qdisc<A>>>,
    default_qdisc: String,
    children: Vec<(u16, String)>,
    discipline: String,
    xps: Option<XpsMap>,
    pool: Option<Pool<A>>,
    pool_config: PoolConfig,
    tx_queue_len: u32,
    max_burst: u32,
    workers: usize,
    sampling: Sampling,
    flow_key: [u64; 2],
    symmetric: bool,
}

impl NetDev {
    /// A device on a driver, on the machine the program runs on.
    pub fn builder(driver: impl Driver + 'static) -> Builder {
        Builder::new(Box::new(driver))
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty => $field:ident = $value:expr;)+) => {
        $($(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $name: $type) -> Self {
            self.$field = $value;
            self
        })+
    };
}

impl<A: Arch> Builder<A> {
    /// A device on a driver, on any machine.
    pub fn new(driver: Box<dyn Driver<A>>) -> Self {
        Self {
            driver,
            txqs: None,
            qdisc: None,
            custom_qdisc: None,
            default_qdisc: "pfifo_fast".into(),
            children: Vec::new(),
            discipline: enqueue::kinds::<A>()[0].name.into(),
            xps: None,
            pool: None,
            pool_config: PoolConfig::default(),
            tx_queue_len: 1000,
            max_burst: QDISC_MAX_BURST,
            workers: 1,
            sampling: Sampling::Off,
            flow_key: [0x7478_7120_6b65_7930, 0x7478_7120_6b65_7931],
            symmetric: false,
        }
    }

    setters! {
        /// How many of the device's txqs to use.
        txqs: u16 => txqs = Some(txqs);
        /// The root qdisc in tc's words: `"pfifo limit 1000"`, `"handle 1: mq"`.
        qdisc: &str => qdisc = Some(qdisc.to_owned());
        /// The kind of qdisc that mq gives each txq (`net.core.default_qdisc`), with its options if you like.
        default_qdisc: &str => default_qdisc = default_qdisc.to_owned();
        /// The enqueue discipline, one of [`enqueue::names`].
        discipline: &str => discipline = discipline.to_owned();
        /// The map from CPUs to txqs. Without one, a packet's flow hash decides.
        xps: XpsMap => xps = Some(xps);
        /// A pool that other devices may share.
        pool: Pool<A> => pool = Some(pool);
        /// A pool of the device's own.
        pool_config: PoolConfig => pool_config = pool_config;
        /// The default limit of qdiscs, in packets (`tx_queue_len`).
        tx_queue_len: u32 => tx_queue_len = tx_queue_len;
        /// Bound of packets that wait for a queue's owner (`net.core.qdisc_max_burst`).
        max_burst: u32 => max_burst = max_burst;
        /// How many workers there are.
        workers: usize => workers = workers;
        /// Whose latency is measured.
        sampling: Sampling => sampling = sampling;
        /// The secret of the flow hash. Give a random one where flows are chosen by others.
        flow_key: [u64; 2] => flow_key = flow_key;
        /// Whether both directions of a flow hash alike.
        symmetric_hash: bool => symmetric = symmetric_hash;
    }

    /// A root qdisc of the program's own, in place of a text's. It serves all txqs.
    #[must_use]
    pub fn custom_qdisc(mut self, qdisc: impl Qdisc<A> + 'static) -> Self {
        self.custom_qdisc = Some(Box::new(qdisc));
        self
    }

    /// A qdisc of its own for one txq under mq, in place of the default one.
    #[must_use]
    pub fn child(mut self, txq: u16, qdisc: &str) -> Self {
        self.children.push((txq, qdisc.to_owned()));
        self
    }

    /// Makes the device. The caller drives its workers ([`NetDev::worker`]).
    pub fn build(mut self) -> Result<NetDev<A>, BuildError> {
        let info = self.driver.info();
        let asked = self.txqs.unwrap_or(info.txqs);
        if asked == 0 || asked > info.txqs {
            return Err(BuildError::Txqs { device: info.name, max: info.txqs, asked });
        }
        if self.workers == 0 {
            return Err(BuildError::Workers);
        }
        if let Some(map) = self.xps.as_ref().map(XpsMap::txqs).filter(|&map| map != usize::from(asked)) {
            return Err(BuildError::Xps { map, txqs: asked });
        }
        let env =
            Env { tx_queue_len: self.tx_queue_len, mtu: info.mtu.saturating_add(HARD_HEADER), txqs: asked };
        let mut tree = Tree::new(env, self.default_qdisc.clone());
        let plan = self.plan(&mut tree)?;
        let rule = A::AtomicU32::new(Rule::first(plan.shape).word());
        (tree.root, tree.children) = (plan.root, plan.children);
        let roots = self.roots(plan.shape, plan.qdiscs, asked)?;
        let pool = match self.pool.take() {
            Some(pool) => pool,
            None => Pool::new(&self.pool_config)?,
        };
        let open = |txq| {
            let opened = self.driver.open(txq);
            let queue =
                opened.map_err(|source| BuildError::Open { device: info.name.clone(), txq, source })?;
            Ok(TxQueue::new(txq, queue))
        };
        let txqs = (0..asked).map(open).collect::<Result<Box<[_]>, BuildError>>()?;
        let sched = (0..self.workers).map(|_| Schedule::new(roots.len(), txqs.len())).collect();
        let shared = Shared {
            info,
            txqs,
            roots,
            rule: CachePadded::new(rule),
            tree: SpinLock::new(tree),
            lost: CachePadded::new(A::AtomicU64::new(0)),
            looped: A::AtomicU64::new(0),
            worker_deaths: A::AtomicU64::new(0),
            sched,
            steering: Arc::new(Rcu::new(Steering { xps: self.xps })),
            hasher: FlowHasher::new(self.flow_key, self.symmetric),
            sampling: match self.sampling {
                Sampling::Every(n) => Sampling::Every(n.max(1)),
                other => other,
            },
            senders: SpinLock::new(Senders { alive: Vec::new(), gone: 0 }),
            stopping: A::AtomicU32::new(0),
            created: A::now(),
            pool,
        };
        Ok(NetDev { shared: Arc::new(shared), threads: Vec::new() })
    }

    /// What shall be attached.
    fn plan(&mut self, tree: &mut Tree) -> Result<Plan<A>, BuildError> {
        let wrong = |text: &str| {
            let text = text.to_owned();
            move |source| BuildError::Qdisc { text, source }
        };
        let custom = self.custom_qdisc.take();
        if self.qdisc.is_some() || custom.is_some() || !self.children.is_empty() {
            tree.named_qdisc();
        }
        let mut plan = match (custom, &self.qdisc) {
            (Some(qdisc), _) => {
                let handle = tree.handle(None);
                tree.plan(Built::Qdisc(qdisc), handle)
            }
            (None, Some(text)) => {
                let (header, built) = qdisc::build::<A>(text, &tree.env).map_err(wrong(text))?;
                let handle = tree.handle(header.handle);
                tree.plan(built, handle)
            }
            (None, None) => tree.default_root(),
        }
        .map_err(wrong(&self.default_qdisc))?;
        for (txq, text) in &self.children {
            let why = match &plan.children {
                Some(children) if usize::from(*txq) < children.len() => {
                    let (header, built) = qdisc::build::<A>(text, &tree.env).map_err(wrong(text))?;
                    let at = usize::from(*txq);
                    plan.qdiscs[at] = Some(child(built).map_err(wrong(text))?);
                    let handle = tree.handle(header.handle);
                    plan.children.iter_mut().for_each(|children| children[at] = handle);
                    continue;
                }
                Some(children) => format!("the device has txqs 0 to {}", children.len() - 1),
                None => "only mq has a qdisc for each txq: use \"mq\" as the root".into(),
            };
            return Err(BuildError::Child { text: text.clone(), txq: *txq, why });
        }
        Ok(plan)
    }

    /// The queues of all rules, those of `shape` with their qdiscs.
    fn roots(
        &self,
        shape: Shape,
        qdiscs: Vec<Option<Box<dyn Qdisc<A>>>>,
        txqs: u16,
    ) -> Result<Box<[Root<A>]>, BuildError> {
        let Some(kind) = enqueue::kinds::<A>().into_iter().find(|k| k.name == self.discipline) else {
            let known = enqueue::names().join(", ");
            return Err(BuildError::Discipline { name: self.discipline.clone(), known });
        };
        let mut qdiscs = qdiscs.into_iter();
        let each = |shape| (0..txqs).map(move |txq| (shape, Some(txq)));
        let all = (txqs > 1).then_some((Shape::Shared, None));
        let root = |(index, (has, txq)): (usize, (Shape, Option<u16>))| {
            let in_force = has == shape;
            let qdisc = in_force.then(|| qdiscs.next().flatten()).flatten();
            let core = Core::new(qdisc, if in_force { Gate::Open } else { Gate::Relay });
            let discipline = match (has, txq) {
                (Shape::NoQueue, Some(txq)) => Box::new(NoQueue::new(core, txq)),
                _ => (kind.build)(core, self.max_burst),
            };
            Root { index, txq, discipline, burst_drops: A::AtomicU64::new(0) }
        };
        Ok(each(Shape::PerTxq).chain(all).chain(each(Shape::NoQueue)).enumerate().map(root).collect())
    }
}

impl Builder<Native> {
    /// Makes the device and starts its workers, each on a thread of its own.
    pub fn start(self) -> Result<NetDev, BuildError> {
        let mut dev = self.build()?;
        for index in 0..dev.shared.sched.len() {
            let shared = dev.shared.clone();
            let thread = std::thread::Builder::new().name(format!("txq-worker-{index}"));
            dev.threads
                .push(thread.spawn(move || Worker::supervise(&shared, index)).map_err(BuildError::Thread)?);
        }
        Ok(dev)
    }
}
