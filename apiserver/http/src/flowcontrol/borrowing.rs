//! The concurrency limits of priority levels: their nominal shares, and what they lend to
//! and borrow from each other as their demand changes (KEP-1040).

/// The weight of the last smoothed demand in the next: its half-life is 5 minutes.
const DEMAND_SMOOTHING: f64 = 0.977;
/// Steps of the search for the fair proportion; a double has fewer bits.
const BISECTION_STEPS: usize = 64;

/// The shares of a level, from its PriorityLevelConfiguration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConcurrencyShares {
    pub(super) nominal_shares: u32,
    pub(super) lendable_percent: u32,
    /// `None`: no limit.
    pub(super) borrowing_limit_percent: Option<u32>,
    pub(super) is_exempt: bool,
}

/// The limits of a level in seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConcurrencyLimits {
    pub(super) nominal: usize,
    /// The seats that remain when everything lendable is lent.
    pub(super) min: usize,
    /// The limit with everything borrowed that the level may borrow.
    pub(super) max: usize,
}

/// Divides the server's limit by shares, rounding up.
pub(super) fn nominal_limits(
    server_limit: usize,
    levels: &[ConcurrencyShares],
) -> Vec<ConcurrencyLimits> {
    let sum: u64 = levels.iter().map(|l| u64::from(l.nominal_shares)).sum();
    let percent =
        |amount: usize, percent: u32| (amount as f64 * f64::from(percent) / 100.0).round();
    let limits = levels.iter().map(|level| {
        let share = server_limit as u64 * u64::from(level.nominal_shares);
        let nominal = share.div_ceil(sum.max(1)) as usize;
        let borrowed = level.borrowing_limit_percent;
        let borrowed = borrowed.map_or(server_limit, |limit| percent(nominal, limit) as usize);
        let lendable_seats = percent(nominal, level.lendable_percent) as usize;
        ConcurrencyLimits {
            nominal,
            min: nominal.saturating_sub(lendable_seats),
            max: nominal + borrowed,
        }
    });
    limits.collect()
}

/// The demand for seats of a level since the last adjustment: an integral over time.
#[derive(Clone, Debug, Default)]
pub(super) struct DemandIntegrator {
    since: f64,
    updated_at: f64,
    current: f64,
    integral: f64,
    integral_of_squares: f64,
    high_watermark: f64,
}

impl DemandIntegrator {
    pub(super) fn set(&mut self, now: f64, demand: usize) {
        self.advance(now);
        self.current = demand as f64;
        self.high_watermark = self.high_watermark.max(self.current);
    }

    fn advance(&mut self, now: f64) {
        let elapsed = (now - self.updated_at).max(0.0);
        self.integral += self.current * elapsed;
        self.integral_of_squares += self.current * self.current * elapsed;
        self.updated_at = now;
    }

    /// Begins a new period; adds the last to the statistics.
    pub(super) fn reset(&mut self, now: f64, statistics: &mut DemandStatistics) {
        self.advance(now);
        let period = now - self.since;
        statistics.high_watermark = self.high_watermark as usize;
        if period > 0.0 {
            let average = self.integral / period;
            let variance = self.integral_of_squares / period - average * average;
            let envelope = average + variance.max(0.0).sqrt();
            let decayed =
                DEMAND_SMOOTHING * statistics.smoothed + (1.0 - DEMAND_SMOOTHING) * envelope;
            statistics.smoothed = envelope.max(decayed);
        }
        *self = Self {
            since: now,
            updated_at: now,
            current: self.current,
            high_watermark: self.current,
            ..Self::default()
        };
    }
}

/// The demand of a level over its past periods.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DemandStatistics {
    pub(super) high_watermark: usize,
    pub(super) smoothed: f64,
}

/// The input from which the current limit of a level is computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct LevelDemand {
    pub(super) limits: ConcurrencyLimits,
    pub(super) statistics: DemandStatistics,
    pub(super) is_exempt: bool,
}

impl LevelDemand {
    /// The limit that the level keeps: it takes back what it lent as far as it used it.
    fn lower_bound(&self) -> usize {
        let demand = self.statistics.high_watermark;
        match self.is_exempt {
            true => self.limits.min.max(demand),
            false => self.limits.min.max(self.limits.nominal.min(demand)),
        }
    }

    fn target(&self) -> f64 {
        // A level without demand still gets a part of what is left.
        self.statistics
            .smoothed
            .max(self.lower_bound() as f64)
            .max(0.001)
    }
}

/// The current limits, in the order of the levels. What exempt levels use is taken from
/// the others, down to the minimum of each.
pub(super) fn current_limits(levels: &[LevelDemand]) -> Vec<usize> {
    let total: usize = levels.iter().map(|level| level.limits.nominal).sum();
    let (exempt, limited): (Vec<&LevelDemand>, Vec<&LevelDemand>) =
        levels.iter().partition(|level| level.is_exempt);
    let exempted: usize = exempt.iter().map(|level| level.lower_bound()).sum();
    let remaining_seats = total.saturating_sub(exempted) as f64;
    let sum = |bound: &dyn Fn(&LevelDemand) -> usize| -> f64 {
        limited.iter().map(|level| bound(level) as f64).sum()
    };
    let (min_sum, lower_sum) = (sum(&|l| l.limits.min), sum(&|l| l.lower_bound()));
    let proportion = fair_proportion(remaining_seats, &limited);
    let limit = |level: &LevelDemand| -> usize {
        let lower = level.lower_bound();
        if level.is_exempt {
            return lower;
        }
        let min = level.limits.min;
        if remaining_seats <= min_sum {
            min
        } else if remaining_seats <= lower_sum {
            let fraction = (remaining_seats - min_sum) / (lower_sum - min_sum);
            min + ((lower - min) as f64 * fraction).round() as usize
        } else {
            let fair = proportion * level.target();
            fair.clamp(lower as f64, level.limits.max.max(lower) as f64)
                .round() as usize
        }
    };
    levels.iter().map(limit).collect()
}

/// The factor of every target at which the limits, each within its bounds, sum up to
/// `total`.
fn fair_proportion(total: f64, levels: &[&LevelDemand]) -> f64 {
    let sum_at = |proportion: f64| -> f64 {
        let limits = levels.iter().map(|level| {
            let lower = level.lower_bound() as f64;
            (proportion * level.target()).clamp(lower, lower.max(level.limits.max as f64))
        });
        limits.sum()
    };
    let (mut low, mut high) = (0.0, 1.0);
    while sum_at(high) < total && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..BISECTION_STEPS {
        let middle = (low + high) / 2.0;
        match sum_at(middle) < total {
            true => low = middle,
            false => high = middle,
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(
        nominal_shares: u32,
        lendable_percent: u32,
        borrowing: Option<u32>,
    ) -> ConcurrencyShares {
        ConcurrencyShares {
            nominal_shares,
            lendable_percent,
            borrowing_limit_percent: borrowing,
            is_exempt: false,
        }
    }

    fn demand(limits: ConcurrencyLimits, high_watermark: usize) -> LevelDemand {
        LevelDemand {
            limits,
            statistics: DemandStatistics {
                high_watermark,
                smoothed: high_watermark as f64,
            },
            is_exempt: false,
        }
    }

    #[test]
    fn limits_follow_shares_and_demand() {
        let levels = [
            shares(30, 50, None),
            shares(10, 0, Some(100)),
            shares(20, 90, None),
        ];
        let limits = nominal_limits(600, &levels);
        let limits_of = |l: &ConcurrencyLimits| (l.nominal, l.min, l.max);
        let limits_of: Vec<_> = limits.iter().map(limits_of).collect();
        assert_eq!(
            limits_of,
            [(300, 150, 900), (100, 100, 200), (200, 20, 800)]
        );
        // Nobody wants anything: what is left is divided, none has less than its minimum.
        let idle: Vec<_> = limits.iter().map(|l| demand(*l, 0)).collect();
        let current = current_limits(&idle);
        assert_eq!(current.iter().sum::<usize>(), 600);
        // One level wants everything: it gets what the others lend.
        let mut busy = idle;
        busy[0] = demand(limits[0], 2000);
        assert_eq!(current_limits(&busy), [480, 100, 20]);
        // The borrower gives back what the lender wants again.
        busy[2] = demand(limits[2], 200);
        assert_eq!(current_limits(&busy), [300, 100, 200]);
        // The seats that an exempt level uses are missing elsewhere.
        busy.push(LevelDemand {
            is_exempt: true,
            ..demand(
                ConcurrencyLimits {
                    nominal: 0,
                    min: 0,
                    max: 0,
                },
                330,
            )
        });
        assert_eq!(current_limits(&busy), [150, 100, 20, 330]);
    }

    #[test]
    fn demand_is_averaged_and_decays() {
        let mut integrator = DemandIntegrator::default();
        let mut statistics = DemandStatistics::default();
        integrator.set(0.0, 10);
        integrator.set(5.0, 0);
        integrator.reset(10.0, &mut statistics);
        assert_eq!(statistics.high_watermark, 10);
        assert!((statistics.smoothed - 10.0).abs() < 1e-9, "{statistics:?}");
        integrator.reset(20.0, &mut statistics);
        assert_eq!(statistics.high_watermark, 0);
        assert!((statistics.smoothed - 9.77).abs() < 1e-9, "{statistics:?}");
    }

    proptest! {
        #[test]
        fn limits_stay_within_bounds_and_sum_up(
            levels in proptest::collection::vec((1u32..100, 0u32..=100, proptest::option::of(0u32..300), 0usize..1000), 1..8),
        ) {
            let shares: Vec<_> = levels.iter().map(|(s, l, b, _)| shares(*s, *l, *b)).collect();
            let limits = nominal_limits(600, &shares);
            let demands: Vec<_> =
                limits.iter().zip(&levels).map(|(l, (.., d))| demand(*l, *d)).collect();
            let current = current_limits(&demands);
            for (limit, level) in current.iter().zip(&demands) {
                prop_assert!(*limit >= level.lower_bound() && *limit <= level.limits.max);
            }
            let nominal: usize = limits.iter().map(|l| l.nominal).sum();
            // Each limit is rounded.
            prop_assert!(current.iter().sum::<usize>() <= nominal + levels.len());
        }
    }
}
