//! The model of time against one profile of this program (`docs/profile.md`: Qwen3-0.6B Q4_0, two cores
//! of a virtual machine, decoding), with the limits that were measured in the same run. The only machine
//! of ours; it has one memory node.

use arclight_tune as tune;
use graph::KvType;
use tune::{CoreMath, CoreRead, Engine, MachineModel, ModelGraphs, WaitModel, Work, predict};

#[test]
fn decoding_is_predicted_as_the_upper_bound_that_it_is() {
    // "limits: read 40.0 GB/s; int8 901, bf16 473, f32 245 GMAC/s", of two threads; kernels reach 70 %.
    let core = |limit: f64| 0.7 * limit * 1e9 / 2.0;
    let math = CoreMath { int8: core(901.0), bf16: core(473.0), f32: core(245.0), elements: 2e9 };
    // 0.260 ms of waits in a step of 144 by the compiled program: 1.8 us each.
    let waits = WaitModel {
        arrival: 0.45e-6,
        remote_arrival: 0.45e-6,
        line: 0.45e-6,
        remote_line: 0.45e-6,
    };
    let read = CoreRead { local: 30e9, remote: 30e9 };
    let machine = MachineModel::new(vec![2], vec![vec![40e9]], read, math, waits).unwrap();
    let model = ModelGraphs::published("qwen3-0.6b:q4_0".parse().unwrap(), KvType::F16);
    let step = Engine::tensor_parallel().step(&model, Work::decode(32), &[2]).unwrap();
    let predicted = predict(&machine, &step).unwrap();
    // 11.563 ms a token were measured. The model lets every stage run at the memory's full speed, of
    // which the profile shows 84 %; so it may be faster by as much, and not slower.
    let over = 11.563e-3 / predicted.seconds;
    assert!((1.0..1.0 / 0.84).contains(&over), "{over}: {predicted:?}");
    // Quantisation, norms, joins and sums took 0.086 + 0.045 + 0.034 + 0.032 ms; the sampler 0.1 % of the time
    // from first to last.
    let serial = predicted.alone() / (0.197e-3 + 0.001 * 11.563e-3);
    assert!((0.8..1.25).contains(&serial), "{serial}");
}
