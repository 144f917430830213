//! Records as JSON. Locks, sites and words are named as in the tables; a name that this release does not know is left out.

/// A [`Log2`](txq::stats::log2::Log2) as pairs: the smallest value of a bucket, and the bucket's count.
pub(super) mod log2 {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use txq::stats::log2::Log2;

    pub(in crate::record) fn serialize<S: Serializer>(log2: &Log2, to: S) -> Result<S::Ok, S::Error> {
        let used = log2.buckets().filter(|bucket| bucket.count > 0);
        used.map(|bucket| (bucket.min, bucket.count)).collect::<Vec<_>>().serialize(to)
    }

    pub(in crate::record) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Log2, D::Error> {
        let mut log2 = Log2::new();
        Vec::<(u64, u64)>::deserialize(from)?.iter().for_each(|&(min, count)| log2.add(min, count));
        Ok(log2)
    }
}

/// A [`ContentionReport`](txq::stats::contention::ContentionReport).
pub(super) mod contention {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use txq::stats::contention::{ContentionReport, Lock, LockStats, Retry, Site, SiteReport, Spread};
    use txq::stats::log2::Log2;

    #[derive(Serialize, Deserialize)]
    struct Wire {
        sites: Vec<WireSite>,
        /// Failed exchanges: the name of the word, and the number.
        retries: Vec<(String, u64)>,
        #[serde(with = "super::log2")]
        drained: Log2,
        hand_offs: u64,
    }

    #[derive(Serialize, Deserialize)]
    struct WireSite {
        lock: String,
        site: String,
        acquisitions: u64,
        contended: u64,
        acquisition_bounces: u64,
        contention_bounces: u64,
        wait: WireSpread,
        #[serde(with = "super::log2")]
        waits: Log2,
        hold: WireSpread,
        held_up: u64,
    }

    #[derive(Serialize, Deserialize)]
    struct WireSpread {
        count: u64,
        total: u64,
        min: u64,
        max: u64,
    }

    impl From<&Spread> for WireSpread {
        fn from(of: &Spread) -> Self {
            Self { count: of.count, total: of.total, min: of.min, max: of.max }
        }
    }

    fn spread(of: &WireSpread) -> Spread {
        let mut spread = Spread::default();
        (spread.count, spread.total, spread.min, spread.max) = (of.count, of.total, of.min, of.max);
        spread
    }

    pub(in crate::record) fn serialize<S: Serializer>(
        report: &ContentionReport,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let sites = report.sites.iter().map(|row| WireSite {
            lock: row.lock.name().to_owned(),
            site: row.site.name().to_owned(),
            acquisitions: row.stats.acquisitions,
            contended: row.stats.contended,
            acquisition_bounces: row.stats.acquisition_bounces,
            contention_bounces: row.stats.contention_bounces,
            wait: (&row.stats.wait).into(),
            waits: row.stats.waits,
            hold: (&row.stats.hold).into(),
            held_up: row.stats.held_up,
        });
        let retries =
            Retry::ALL.iter().map(|&retry| (retry.name().to_owned(), report.retries[retry as usize]));
        Wire {
            sites: sites.collect(),
            retries: retries.collect(),
            drained: report.drained,
            hand_offs: report.hand_offs,
        }
        .serialize(to)
    }

    pub(in crate::record) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<ContentionReport, D::Error> {
        let wire = Wire::deserialize(from)?;
        let mut report = ContentionReport::default();
        report.sites = wire.sites.iter().filter_map(row).collect();
        for (name, count) in &wire.retries {
            if let Some(retry) = Retry::ALL.iter().find(|retry| retry.name() == name) {
                report.retries[*retry as usize] = *count;
            }
        }
        report.drained = wire.drained;
        report.hand_offs = wire.hand_offs;
        Ok(report)
    }

    fn row(wire: &WireSite) -> Option<SiteReport> {
        let lock = *Lock::ALL.iter().find(|lock| lock.name() == wire.lock)?;
        let site = *Site::ALL.iter().find(|site| site.name() == wire.site)?;
        let mut stats = LockStats::default();
        stats.acquisitions = wire.acquisitions;
        stats.contended = wire.contended;
        stats.acquisition_bounces = wire.acquisition_bounces;
        stats.contention_bounces = wire.contention_bounces;
        stats.wait = spread(&wire.wait);
        stats.waits = wire.waits;
        stats.hold = spread(&wire.hold);
        stats.held_up = wire.held_up;
        Some(SiteReport { lock, site, stats })
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::record::Contention;

        #[test]
        fn a_report_survives_its_json() {
            let mut stats = LockStats::default();
            (stats.acquisitions, stats.contended, stats.held_up) = (7, 3, 2);
            stats.wait = spread(&WireSpread { count: 3, total: 9, min: 1, max: 5 });
            [1, 3, 5].iter().for_each(|&wait| stats.waits.record(wait));
            let mut report = ContentionReport::default();
            report.sites.push(SiteReport { lock: Lock::Tx, site: Site::Driver, stats });
            report.retries[Retry::Inbox as usize] = 4;
            report.drained.record(64);
            report.hand_offs = 6;
            let sent = Contention { device: "d".into(), seconds: 1.5, sent: 8, report };
            let json = serde_json::to_string(&sent).unwrap();
            let read: Contention = serde_json::from_str(&json).unwrap();
            assert_eq!((&read.report, read.sent), (&sent.report, 8));
            let other = json.replace("tx lock", "new lock").replace("inbox", "outbox");
            let read: Contention = serde_json::from_str(&other).unwrap();
            assert!(read.report.sites.is_empty() && read.report.retries.iter().sum::<u64>() == 0);
        }
    }
}
