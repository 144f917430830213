//! Device construction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use txq_core::arch::{Arch, Atomic, Native};
use txq_core::flow::FlowHasher;
use txq_core::pool::{Pool, PoolConfig, PoolError};
use txq_core::sync::contention::Retries;
use txq_core::sync::fill::Fill;
use txq_core::sync::rcu::Rcu;
use txq_sched::generic::qdisc::{self, Built, Env, Parent, Qdisc};

use super::control::Control;
use super::steer::check;
use super::tree::{Plan, Tree, child};
use super::{BuildError, NetDev, demand, nanos};
use crate::generic::bql::BqlConfig;
use crate::generic::datapath::{Core, Datapath, Gate, Lease, Root, RootSelector, Shape, Usage};
use crate::generic::driver::Driver;
use crate::generic::enqueue::{Discipline, NoQueue, QDISC_MAX_BURST};
use crate::generic::registry::Registry;
use crate::generic::schedule::Schedule;
use crate::generic::shared::hook::Hooks;
use crate::generic::shared::{Sampling, Shared};
use crate::generic::steering::Steering;
use crate::generic::trace::Tracer;
use crate::generic::txqueue::{
    Completions, DriverBugEvent, DriverBugHook, Setup, TimeoutHook, TxQueue, TxTimeout, Watchdog,
};
use crate::xps::{MaskOf, XpsMap};

mod start;

/// How long a txq may be stopped before that is reported (`watchdog_timeo`).
const WATCHDOG_TIMEO: Duration = Duration::from_secs(5);

/// After how long a flow may leave a txq that it never finds empty (`net.core.txq_reselection_ms`).
const TXQ_RESELECTION: Duration = Duration::from_secs(1);

/// The default of [`Builder::default_qdisc`].
const DEFAULT_QDISC: &str = "pfifo_fast";

/// The key of the flow hash of packets without a hash. It is the same in each run, and public.
const FLOW_KEY: [u64; 2] = [0x7478_7120_6b65_7930, 0x7478_7120_6b65_7931];

/// The configuration of a device to build. Defaults: all txqs, `mq` over `pfifo_fast` (`pfifo_fast` alone with one txq), the
/// discipline `combine`, a map from CPUs to txqs if the device is started, a pool of at least 4096 packets, one worker.
pub struct Builder<A: Arch = Native> {
    driver: Box<dyn Driver<A>>,
    txqs: Option<u16>,
    qdisc: Option<String>,
    custom_qdisc: Option<Box<dyn Qdisc<A>>>,
    default_qdisc: String,
    children: Vec<(u16, String)>,
    discipline: Discipline,
    /// `None` for [`Builder::auto_xps`].
    xps: Option<Option<XpsMap>>,
    /// The map of a started device to which none was given.
    auto_xps: Option<XpsMap>,
    xps_rxqs: Option<XpsMap>,
    reselection: Duration,
    pool: Option<Pool<A>>,
    /// `None` for a pool whose size follows from the limits of the qdiscs.
    pool_config: Option<PoolConfig>,
    tx_queue_len: u32,
    max_burst: u32,
    workers: usize,
    /// Bound on the completers of [`Completions::PerQueue`].
    completers: usize,
    spin: Duration,
    sampling: Sampling,
    contention: bool,
    xmit_times: bool,
    bql: Option<BqlConfig>,
    completions: Completions,
    defer_completions: bool,
    affinity: Option<Vec<usize>>,
    tx_lock: bool,
    watchdog_timeo: Option<Duration>,
    on_tx_timeout: Option<TimeoutHook>,
    on_driver_bug: Option<DriverBugHook>,
}

impl<A: Arch> fmt::Debug for Builder<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("txqs", &self.txqs)
            .field("qdisc", &self.qdisc)
            .field("discipline", &self.discipline)
            .finish_non_exhaustive()
    }
}

impl NetDev {
    /// Begins a device on `driver`, on the machine that the program runs on.
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
    /// Begins a device on `driver`, on any machine.
    #[inline(never)]
    pub fn new(driver: Box<dyn Driver<A>>) -> Self {
        Self {
            driver,
            txqs: None,
            qdisc: None,
            custom_qdisc: None,
            default_qdisc: DEFAULT_QDISC.into(),
            children: Vec::new(),
            discipline: Discipline::default(),
            xps: None,
            auto_xps: None,
            xps_rxqs: None,
            reselection: TXQ_RESELECTION,
            pool: None,
            pool_config: None,
            tx_queue_len: 1000,
            max_burst: QDISC_MAX_BURST,
            workers: 1,
            completers: usize::MAX,
            spin: Duration::ZERO,
            sampling: Sampling::Off,
            contention: false,
            xmit_times: false,
            bql: Some(BqlConfig::default()),
            completions: Completions::Inline,
            defer_completions: true,
            affinity: None,
            tx_lock: false,
            watchdog_timeo: Some(WATCHDOG_TIMEO),
            on_tx_timeout: None,
            on_driver_bug: None,
        }
    }

    setters! {
        txqs: u16 => txqs = Some(txqs);
        qdisc: &str => qdisc = Some(qdisc.to_owned());
        default_qdisc: &str => default_qdisc = default_qdisc.to_owned();
        discipline: Discipline => discipline = discipline;
        xps: impl Into<Option<XpsMap>> => xps = Some(xps.into());
        xps_rxqs: XpsMap => xps_rxqs = Some(xps_rxqs);
        txq_reselection: Duration => reselection = txq_reselection;
        pool: Pool<A> => pool = Some(pool);
        pool_config: PoolConfig => pool_config = Some(pool_config);
        tx_queue_len: u32 => tx_queue_len = tx_queue_len;
        max_burst: u32 => max_burst = max_burst;
        spin: Duration => spin = spin;
        workers: usize => workers = workers;
        bql: Option<BqlConfig> => bql = bql;
        completions: Completions => completions = completions;
        defer_completions: bool => defer_completions = defer_completions;
        affinity: &[usize] => affinity = Some(affinity.to_vec());
        tx_lock: bool => tx_lock = tx_lock;
        watchdog_timeo: Option<Duration> => watchdog_timeo = watchdog_timeo;
        sampling: Sampling => sampling = sampling;
        contention: bool => contention = contention;
        xmit_times: bool => xmit_times = xmit_times;
    }

    /// Sets a root qdisc of the program's own, in place of one in tc's words.
    #[must_use]
    pub fn custom_qdisc(mut self, qdisc: impl Qdisc<A> + 'static) -> Self {
        self.custom_qdisc = Some(Box::new(qdisc));
        self
    }

    /// Sets the qdisc of one txq under mq, in place of the default one.
    #[must_use]
    #[inline(never)]
    pub fn child(mut self, txq: u16, qdisc: &str) -> Self {
        self.children.push((txq, qdisc.to_owned()));
        self
    }

    /// Sets a function that is called when a txq has been stopped for too long (`ndo_tx_timeout`).
    #[must_use]
    pub fn on_tx_timeout(mut self, hook: impl Fn(&TxTimeout) + Send + Sync + 'static) -> Self {
        self.on_tx_timeout = Some(Box::new(hook));
        self
    }

    /// Sets a function that is called when the driver breaks a rule of [`crate::generic::driver`].
    #[must_use]
    pub fn on_driver_bug(mut self, hook: impl Fn(&DriverBugEvent) + Send + Sync + 'static) -> Self {
        self.on_driver_bug = Some(Box::new(hook));
        self
    }

    /// Builds the device. The caller drives its workers ([`NetDev::worker`]).
    #[inline(never)]
    pub fn build(mut self) -> Result<NetDev<A>, BuildError> {
        let info = self.driver.info();
        let asked = self.txqs.unwrap_or(info.txqs);
        if asked == 0 || asked > info.txqs {
            return Err(BuildError::Txqs { device: info.name, max: info.txqs, asked });
        }
        if self.workers == 0 {
            return Err(BuildError::Workers);
        }
        let (workers, affinity) = (self.workers, self.workers_of(asked)?);
        if let Some(bql) = &self.bql {
            bql.check()?;
        }
        let env = Env {
            tx_queue_len: self.tx_queue_len,
            mtu: info.mtu.saturating_add(info.link.header_len()),
            txqs: asked,
            pacing_horizon: self.driver.pacing_horizon(),
            seed: None,
        };
        let mut tree = Tree::new(env, self.default_qdisc.clone());
        let mut plan = self.plan(&mut tree)?;
        let named = self.qdisc.is_some() || !self.children.is_empty() || self.default_qdisc != DEFAULT_QDISC;
        let queued = demand::queued_by(&mut plan.qdiscs);
        let rule = A::AtomicU32::new(RootSelector::first(plan.shape).word());
        (tree.root, tree.children, tree.parent) = (plan.root, plan.children, plan.parent);
        tree.replicas = plan.replicas;
        let roots = self.roots(plan.shape, plan.qdiscs, asked);
        let classes = tree.parent.as_ref().map(Parent::classes).unwrap_or_default();
        // The maps were made without classes.
        let deal = |map: Option<XpsMap>| map.map(|m| m.in_classes(&classes)).transpose();
        let (cpus, rxqs) = (self.xps.take(), deal(self.xps_rxqs.take())?);
        let cpus = match cpus {
            Some(map) => deal(map)?,
            // A txq may belong to no class.
            None => deal(self.auto_xps.take()).unwrap_or_default(),
        };
        check(&cpus, MaskOf::Cpus, asked.into(), &classes)?;
        check(&rxqs, MaskOf::RxQueues, asked.into(), &classes)?;
        let steering = Steering { real: asked, classes, cpus, rxqs };
        let pool = match self.pool.take() {
            Some(pool) => pool,
            None => match &self.pool_config {
                Some(config) => Pool::new(config)?,
                None => default_pool(if named { queued } else { 0 })?,
            },
        };
        let created = A::now();
        let completers = match self.completions {
            Completions::PerQueue => self.completers.clamp(1, asked.into()),
            Completions::Inline | Completions::Worker => 0,
        };
        let noqueue = plan.shape == Shape::NoQueue;
        let open = |txq: u16| {
            let opened = self.driver.open(txq);
            let queue =
                opened.map_err(|source| BuildError::Open { device: info.name.clone(), txq, source })?;
            if queue.ring == Some(0) {
                return Err(BuildError::Ring { device: info.name.clone(), txq });
            }
            let own = usize::from(txq);
            let setup = Setup {
                inline: self.completions == Completions::Inline,
                defers: self.defer_completions,
                reaper: own.checked_rem(completers).map_or(affinity[own], |completer| workers + completer),
                bql: self.bql.filter(|_| !noqueue),
                now: created,
            };
            Ok(TxQueue::new(txq, queue, &setup))
        };
        let txqs = (0..asked).map(open).collect::<Result<Box<[_]>, BuildError>>()?;
        let sched = (0..workers).map(|_| Schedule::new(roots.len(), txqs.len()));
        let sched = sched.chain((0..completers).map(|_| Schedule::new(0, txqs.len()))).collect();
        let hook = self.on_tx_timeout;
        let path = Datapath {
            info,
            txqs,
            roots,
            rule: CachePadded::new(rule),
            lease: (self.discipline == Discipline::Combine).then(|| CachePadded::new(Lease::new())),
            lost: CachePadded::new(A::AtomicU64::new(0)),
            looped: A::AtomicU64::new(0),
            worker_deaths: A::AtomicU64::new(0),
            sched,
            affinity,
            tx_lock: self.tx_lock,
            senders_help: self.defer_completions,
            workers,
            has_threads: A::AtomicU32::new(0),
            spin: nanos(self.spin),
            driver_bug_hook: self.on_driver_bug,
            watchdog: self.watchdog_timeo.map(|timeo| Watchdog { timeo: nanos(timeo), hook }),
            retries: Retries::new(),
            tracer: Arc::new(Tracer::new()),
            stopping: A::AtomicU32::new(0),
            pool,
        };
        let shared = Shared {
            steering: Arc::new(Rcu::new(steering)),
            reselection: nanos(self.reselection),
            hasher: FlowHasher::new(FLOW_KEY, false),
            sampling: match self.sampling {
                Sampling::Every(n) => Sampling::Every(n.max(1)),
                other => other,
            },
            xmit_times: self.xmit_times,
            senders: Registry::new(),
            created,
            hooks: Hooks::new(),
            path,
        };
        let (shared, control) = (Arc::new(shared), Arc::new(Control::new(tree)));
        let process = std::process::id();
        let dev = NetDev { shared, control, threads: Vec::new(), process, owner: true };
        dev.control(|tree, _| dev.publish_names(tree));
        dev.shared.name_lines();
        dev.shared.grant_first_seats();
        if self.contention {
            dev.set_contention(true);
        }
        Ok(dev)
    }

    /// Returns the worker of each txq.
    fn workers_of(&self, txqs: u16) -> Result<Box<[usize]>, BuildError> {
        let (workers, all) = (self.workers, usize::from(txqs));
        match &self.affinity {
            None => Ok((0..all).map(|txq| txq % workers).collect()),
            Some(map) if map.len() == all && map.iter().all(|&worker| worker < workers) => {
                Ok(map.clone().into())
            }
            Some(map) => Err(BuildError::Affinity { map: map.clone(), txqs, workers }),
        }
    }

    /// Returns the qdiscs to attach.
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
                let handle = tree.handle(None, Tree::names);
                tree.plan(Built::Qdisc(qdisc), handle)
            }
            (None, Some(text)) => {
                let (header, built) = qdisc::build::<A>(text, &tree.env).map_err(wrong(text))?;
                let handle = tree.handle(header.handle, Tree::names);
                tree.plan(built, handle)
            }
            (None, None) => tree.default_root(),
        }
        .map_err(wrong(&self.default_qdisc))?;
        for (txq, text) in &self.children {
            let why = match &plan.children {
                Some(_) if plan.parent.as_ref().is_some_and(|parent| !parent.lends_children()) => {
                    "the children of cake_mq are its own: leave it out".into()
                }
                Some(children) if usize::from(*txq) < children.len() => {
                    let (header, built) = qdisc::build::<A>(text, &tree.env).map_err(wrong(text))?;
                    let at = usize::from(*txq);
                    let mut qdisc = child(built).map_err(wrong(text))?;
                    let handle = tree.handle(header.handle, Tree::names);
                    qdisc.set_handle(handle);
                    plan.qdiscs[at] = Some(qdisc);
                    plan.children.iter_mut().for_each(|children| children[at] = handle);
                    continue;
                }
                Some(children) => format!("the device has txqs 0 to {}", children.len() - 1),
                None => "only mq and mqprio have a qdisc for each txq: use \"mq\" as the root".into(),
            };
            return Err(BuildError::Child { text: text.clone(), txq: *txq, why });
        }
        Ok(plan)
    }

    /// Returns the queues of all rules; the queues of `shape` get their qdiscs.
    fn roots(&self, shape: Shape, qdiscs: Vec<Option<Box<dyn Qdisc<A>>>>, txqs: u16) -> Box<[Root<A>]> {
        let mut qdiscs = qdiscs.into_iter();
        let each = |shape| (0..txqs).map(move |txq| (shape, Some(txq)));
        let all = (txqs > 1).then_some((Shape::Shared, None));
        let root = |(index, (has, txq)): (usize, (Shape, Option<u16>))| {
            let in_force = has == shape;
            let qdisc = in_force.then(|| qdiscs.next().flatten()).flatten();
            let core = Core::new(qdisc, if in_force { Gate::Open } else { Gate::Relay });
            let (max_burst, long) = (self.max_burst, core.marks.long(self.max_burst));
            let spare = A::AtomicU32::new(core.marks.spare);
            let discipline = match (has, txq) {
                (Shape::NoQueue, Some(txq)) => Box::new(NoQueue::new(core, txq)),
                _ => self.discipline.build(core, max_burst),
            };
            let (fill, long) = (Fill::new(), A::AtomicU32::new(long));
            let (burst_drops, names) = (A::AtomicU64::new(0), A::AtomicU64::new(0));
            Root {
                index,
                txq,
                discipline,
                fill,
                usage: Usage::new(),
                max_burst,
                long,
                spare,
                burst_drops,
                names,
            }
        };
        each(Shape::PerTxq).chain(all).chain(each(Shape::NoQueue)).enumerate().map(root).collect()
    }
}

/// Returns a pool for qdiscs that may queue `queued` packets, or one of the least size if there is no memory for it.
fn default_pool<A: Arch>(queued: u64) -> Result<Pool<A>, PoolError> {
    let (buffers, max_buffers) = (demand::buffers_for(queued), demand::DEFAULT_BUFFERS.1);
    Pool::new(&PoolConfig { buffers, max_buffers, ..PoolConfig::default() })
        .or_else(|_| Pool::new(&PoolConfig::default()))
}
