use super::*;
use crate::density::Density;
use crate::gaps::{CLASSES, Decaying};
use crate::replay::machine::Chance;

fn costs(weight: f32, wake: f32) -> Costs {
    let overshoot_us = [5.0, 7.0, 7.5, 8.5, 9.0, 10.0, 10.5, 11.0, 12.0, 14.0, 16.0, 18.0];
    Costs {
        weight,
        sleep: [wake; CLASSES],
        alone: [wake; CLASSES],
        alone_us: [wake; CLASSES],
        budget_us: None,
        wake_us: wake,
        spin_max_us: 64.0 * wake,
        timer_cpu_us: 3.0,
        sleep_cpu_us: 0.0,
        overshoot_us,
    }
}

#[test]
fn a_promise_is_kept_on_gaps_not_seen() {
    for (weight, mean) in [(1.0, 20.0), (0.1, 20.0), (0.1, 350.0), (1.0, 80.0), (10.0, 10.0)] {
        let costs = costs(weight, 80.0);
        let mut chance = Chance::new(7);
        let mut histogram = Decaying::new(4096.0);
        (0..4096).for_each(|_| histogram.add(chance.exponential(mean) as f32, 1.0));
        let mut last: Vec<f32> = (0..512).map(|_| chance.exponential(mean) as f32).collect();
        let leads = [25.0, 17.0, 15.0, 12.0, 10.0, 9.0, 7.0, 4.0];
        let fresh: Vec<f32> = (0..20000).map(|_| chance.exponential(mean) as f32).collect();
        let late = costs.overshoot_us.iter().cycle();
        let paid = |plan: &IdlePlan| {
            let each =
                fresh.iter().zip(late.clone()).map(|(gap, late)| plan.live(*gap, 0.0, &costs, *late).0);
            each.sum::<f32>() / 20_000.0
        };
        let mut densities = [Density::new(), Density::new()];
        densities[0].be_of_histogram(&histogram, leads);
        densities[1].be_of_gaps(&mut last, leads);
        let mut solver = Solver::new();
        for density in densities {
            let (plan, promised) = solver.solve(&density, &costs);
            let best = paid(&IdlePlan::spin(1e6)).min(paid(&IdlePlan::SLEEP));
            assert!(paid(&plan) < 1.05 * best, "{weight} {mean}: paid {}, simply {best}", paid(&plan));
            let promise = paid(&plan) / promised;
            assert!(
                (0.85..1.18).contains(&promise),
                "{weight} {mean}: promised {promised} paid {}",
                paid(&plan)
            );
        }
    }
}
