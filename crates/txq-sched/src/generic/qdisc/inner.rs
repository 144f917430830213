//! The calls that a qdisc around another one passes on as they are.

/// Implements the methods of `Qdisc` that have nothing to do with packets on their way, by calls of `self.inner`.
macro_rules! calls_of_inner {
    () => {
        fn kind(&self) -> &'static str {
            self.inner.kind()
        }

        fn set_handle(&mut self, handle: $crate::tc::Handle) {
            self.inner.set_handle(handle);
        }

        fn classes(&mut self) -> Option<&mut dyn $crate::generic::qdisc::child::Classes<A>> {
            self.inner.classes()
        }

        fn filters(&mut self, class: u16) -> Option<&mut $crate::generic::filter::Filters<A>> {
            self.inner.filters(class)
        }

        fn copies(&self) -> Option<bool> {
            self.inner.copies()
        }

        fn reset(&mut self, cx: &mut $crate::generic::qdisc::Cx<'_, A>) {
            self.inner.reset(cx);
        }

        fn change(
            &mut self,
            words: &mut $crate::tc::Words<'_>,
            env: &$crate::generic::qdisc::Env,
            cx: &mut $crate::generic::qdisc::Cx<'_, A>,
        ) -> Result<(), $crate::tc::ParseError> {
            self.inner.change(words, env, cx)
        }

        fn set_tx_queue_len(&mut self, packets: u32, cx: &mut $crate::generic::qdisc::Cx<'_, A>) {
            self.inner.set_tx_queue_len(packets, cx);
        }

        fn shrink(&mut self, now: txq_core::arch::Nanos) -> bool {
            self.inner.shrink(now)
        }

        fn qlen(&self) -> usize {
            self.inner.qlen()
        }

        fn limit(&self) -> Option<usize> {
            self.inner.limit()
        }

        fn has_one_limit(&self) -> bool {
            self.inner.has_one_limit()
        }

        fn max_packets(&self) -> Option<usize> {
            self.inner.max_packets()
        }

        fn stats(&self) -> txq_core::stats::QdiscStats {
            self.inner.stats()
        }

        fn total(&self) -> $crate::generic::qdisc::child::Total {
            self.inner.total()
        }

        fn options(&self, style: $crate::tc::Style) -> $crate::tc::Options {
            self.inner.options(style)
        }

        fn xstats(&self, style: $crate::tc::Style) -> Option<$crate::tc::Options> {
            self.inner.xstats(style)
        }

        fn bands(&self) -> Vec<$crate::generic::qdisc::Band> {
            self.inner.bands()
        }

        fn nolock(&self) -> Option<$crate::generic::qdisc::NoLock> {
            self.inner.nolock()
        }

        fn passes_stopped(&self) -> bool {
            self.inner.passes_stopped()
        }

        fn next_event(&self) -> Option<txq_core::arch::Nanos> {
            self.inner.next_event()
        }
    };
}
pub(super) use calls_of_inner;
