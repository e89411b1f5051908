//! Waiting for records of a scenario.

use super::super::guard_violations;
use super::expected_violation::{self, ExpectedViolation};
use super::scenario::Scenario;
use gpukill_tests::harness::{eventually, eventually_equals};
use serde_json::Value;

/// The number of samples that are evaluated after all expected records exist, to detect
/// unexpected ones.
const EXTRA_SAMPLES: usize = 2;

impl Scenario {
    /// The records so far, sorted.
    pub(super) fn recorded(&self) -> Vec<ExpectedViolation> {
        let document = guard_violations(&self.test_box);
        expected_violation::group_records(
            document["records"].as_array().unwrap().iter().rev(),
            self,
        )
    }

    /// The records of a replay.
    fn replayed(&self) -> Vec<ExpectedViolation> {
        expected_violation::group_records(self.replay()["records"].as_array().unwrap().iter(), self)
    }

    /// A replay of the same rules over the whole history.
    fn replay(&self) -> Value {
        let since = ["guard", "replay", "--since", "1h", "-o", "json"];
        self.test_box.json(&since)
    }

    /// Waits until the records are exactly the expected ones and checks that they stay so.
    /// Applies `changes` before each sample.
    pub(super) fn assert_records_while(
        &mut self,
        expected: impl IntoIterator<Item = ExpectedViolation>,
        mut changes: impl FnMut(&mut Self),
    ) {
        let mut expected: Vec<ExpectedViolation> = expected.into_iter().collect();
        expected.sort();
        let mut turn = |scenario: &mut Self| {
            changes(scenario);
            scenario.write_driver_state();
            scenario.wait_for_samples(1);
            scenario.recorded()
        };
        eventually_equals(&expected, || turn(self));
        for _ in 0..EXTRA_SAMPLES {
            assert_eq!(turn(self), expected, "unexpected records");
        }
        eventually_equals(&expected, || self.replayed());
    }

    /// Waits until the records are exactly the expected ones and checks that they stay so.
    pub(super) fn assert_records(&self, expected: impl IntoIterator<Item = ExpectedViolation>) {
        let mut expected: Vec<ExpectedViolation> = expected.into_iter().collect();
        expected.sort();
        eventually_equals(&expected, || self.recorded());
        self.wait_for_samples(EXTRA_SAMPLES);
        assert_eq!(self.recorded(), expected, "unexpected records");
        // A replay gives the same records once all samples are stored.
        eventually_equals(&expected, || self.replayed());
    }

    /// Waits until this many more samples are evaluated.
    pub(super) fn wait_for_samples(&self, more: usize) {
        let evaluated_at = || {
            let status = self.test_box.json(&["guard", "status", "-o", "json"]);
            status["evaluated_at"].clone()
        };
        let mut last = evaluated_at();
        for _ in 0..more {
            last = eventually("another sample is evaluated", || {
                let now = evaluated_at();
                (now != last).then_some(now)
            });
        }
    }

    /// The rules that could not be evaluated in full, and why.
    pub(super) fn unevaluated_rules(&self) -> Vec<String> {
        let report = self.replay();
        let undetermined = report["not_evaluated"].as_array().unwrap().iter();
        let entries = undetermined.map(|it| {
            let entries = [&it["rule"], &it["why"]].map(|it| it.as_str().unwrap());
            self.with_names(&entries.join(": "))
        });
        entries.collect()
    }

    /// Waits until these entries are among the rules that could not be evaluated in full.
    pub(super) fn assert_unevaluated(&self, expected: &[&str]) {
        eventually_equals(&Vec::<&str>::new(), || {
            let found = self.unevaluated_rules();
            let is_evaluated = |it: &&&str| !found.iter().any(|found| found == *it);
            expected.iter().filter(is_evaluated).copied().collect()
        });
    }
}
