//! Kernels on one vector: against f64, and bit for bit between instruction sets.

mod common;

use arclight_kernels::{
    Activation, Curve, Isa, Kernels, RopeStyle, Rows, RowsMut, Xielu, q8_row_bytes,
};
use common::{Aligned, Rng, same_bits};

fn scalar() -> &'static Kernels {
    Kernels::for_isa(Isa::Scalar).unwrap()
}

/// A vector as the only row of a matrix.
fn row(x: &[f32]) -> Rows<'_, f32> {
    Rows::new(x, 1, x.len(), x.len())
}

/// Lengths with and without a tail, shorter and longer than a vector.
const LENGTHS: [usize; 10] = [1, 2, 15, 16, 17, 31, 64, 100, 129, 2560];

/// Distance in units of the last place of `exact`'s binade.
fn ulps(y: f32, exact: f64) -> f64 {
    let exponent = exact.abs().log2().floor().clamp(-126.0, 127.0);
    (f64::from(y) - exact).abs() / 2f64.powf(exponent - 23.0)
}

/// Runs `f` on every instruction set and gives the common result.
#[track_caller]
fn everywhere(what: &str, f: impl Fn(&Kernels) -> Vec<f32>) -> Vec<f32> {
    let expected = f(scalar());
    for kernels in Kernels::available() {
        same_bits(&f(kernels), &expected, format_args!("{what} on {}", kernels.isa()));
    }
    expected
}

#[test]
fn exp_is_within_one_ulp() {
    // Every 997th float from -104 to 89, so all exponents and signs, and the ends.
    let mut x: Vec<f32> = (0..u32::MAX / 997).map(|i| f32::from_bits(i * 997)).collect();
    x.retain(|x| (-104.0..89.0).contains(x));
    x.extend([-87.4, -87.3, -103.9, -103.98, 88.72, 88.73, 0.0, -0.0]);
    let y = everywhere("exp", |k| {
        let mut y = x.clone();
        k.exp(&mut y);
        y
    });
    let mut worst = 0f64;
    for (&x, &y) in x.iter().zip(&y) {
        let exact = f64::from(x).exp();
        if exact > f64::from(f32::MAX) {
            assert_eq!(y, f32::INFINITY, "exp({x})");
            continue;
        }
        worst = worst.max(ulps(y, exact));
        // Half an ulp for each of the last two roundings; the polynomial is within 0.03, subnormals
        // round once more.
        assert!(ulps(y, exact) <= 1.0, "exp({x}) = {y}, off by {} ulp", ulps(y, exact));
    }
    assert!(worst > 0.4, "the yardstick measures something: {worst}");
}

#[test]
fn exp_has_its_limits_exactly() {
    for kernels in Kernels::available() {
        let mut x = [
            0.0,
            -0.0,
            f32::NEG_INFINITY,
            f32::INFINITY,
            -1e30,
            1e30,
            f32::MIN,
            f32::MAX,
            f32::NAN,
        ];
        kernels.exp(&mut x);
        let inf = f32::INFINITY;
        assert_eq!(x[..8], [1.0, 1.0, 0.0, inf, 0.0, inf, 0.0, inf], "{}", kernels.isa());
        assert!(x[8].is_nan());
    }
}

#[test]
fn weights_and_steps_are_those_of_their_exponents() {
    let mut rng = Rng(31);
    for len in LENGTHS {
        let mut logits: Vec<f32> = (0..len).map(|_| 20.0 * rng.unit()).collect();
        for (at, special) in
            [f32::NAN, f32::NEG_INFINITY, -1e30, 20.0 - 0.03125, 20.0].into_iter().enumerate()
        {
            logits[(at * 7 + 3) % len] = special;
        }
        for scale in [1.0, 0.3, 7.0] {
            let curve = Curve { max: 20.0, scale };
            let power = |&l: &f32| if l.is_nan() { f32::NEG_INFINITY } else { (l - 20.0) * scale };
            let powers: Vec<f32> = logits.iter().map(power).collect();
            let weights = everywhere("weigh", |k| {
                let mut weights = vec![f32::NAN; len];
                k.weigh(curve, &logits, &mut weights, &mut []);
                let (mut again, mut steps) = (vec![f32::NAN; len], vec![-1; len]);
                k.weigh(curve, &logits, &mut again, &mut steps);
                same_bits(&again, &weights, format_args!("with steps on {}", k.isa()));
                for (step, power) in steps.iter().zip(&powers) {
                    // `as` rounds towards zero and keeps to the range, as the kernel is to.
                    let want = ((-f64::from(*power) * 32.0) as i64).min(1023);
                    assert_eq!(i64::from(*step), want, "{power} on {}", k.isa());
                }
                weights
            });
            let mut plain = powers.clone();
            scalar().exp(&mut plain);
            same_bits(&weights, &plain, format_args!("{len} weights"));
        }
    }
}

#[test]
fn soft_caps_are_tanh_within_five_ulp() {
    let mut x: Vec<f32> = (0..u32::MAX / 997).map(|i| f32::from_bits(i * 997)).collect();
    x.retain(|x| (1e-30..1e3).contains(&x.abs()));
    x.extend([0.0, -0.0, 8.66, -8.66, 0.173, -0.174]);
    for cap in [1.0, 50.0] {
        let y = everywhere("soft cap", |k| {
            let mut y = x.clone();
            k.soft_cap(&mut y, cap);
            y
        });
        for (&x, &y) in x.iter().zip(&y) {
            let exact = f64::from(cap) * (f64::from(x) / f64::from(cap)).tanh();
            // Half an ulp for each of: 1 / cap, x / cap, q - 1 (twice: its polynomial and its product),
            // 2^n - 1, e^y - 1, the denominator, the quotient, the product with cap; one that is taken
            // from its neighbour across a power of two counts double.
            assert!(ulps(y, exact) <= 5.0, "{cap}, {x}: {y}, off by {} ulp", ulps(y, exact));
            assert!(y.abs() <= cap, "{y}");
        }
    }
    for kernels in Kernels::available() {
        let mut x = [f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::NAN];
        kernels.soft_cap(&mut x, 30.0);
        assert_eq!(x[..3], [30.0, -30.0, 30.0]);
        assert!(x[3].is_nan());
    }
}

#[test]
#[should_panic(expected = "a soft cap of 0")]
fn a_cap_of_nothing_is_refused() {
    Kernels::for_isa(Isa::Scalar).unwrap().soft_cap(&mut [1.0], 0.0);
}

#[test]
fn softmax_matches_f64_and_sums_to_one() {
    let mut rng = Rng(1);
    for len in LENGTHS {
        let x: Vec<f32> = rng.vec(len).iter().map(|v| v * 20.0).collect();
        let y = everywhere("softmax", |k| {
            let mut y = x.clone();
            k.softmax(&mut y);
            y
        });
        let max = x.iter().fold(f64::NEG_INFINITY, |m, &x| m.max(f64::from(x)));
        let e: Vec<f64> = x.iter().map(|&x| (f64::from(x) - max).exp()).collect();
        let sum: f64 = e.iter().sum();
        for (&y, e) in y.iter().zip(e) {
            // exp 1 ulp, the difference in the exponent up to 40 · 2^-24, len / 16 + 4 roundings of
            // the sum.
            let bound = (45.0 + len as f64 / 16.0) * 2f64.powi(-24);
            assert!((f64::from(y) / (e / sum) - 1.0).abs() <= bound, "{y} for {}", e / sum);
        }
    }
    // Scores that are masked out have no weight, and do no harm.
    let y = everywhere("masked softmax", |k| {
        let mut y = vec![f32::NEG_INFINITY; 20];
        (y[3], y[18]) = (1.0, 1.0);
        k.softmax(&mut y);
        y
    });
    assert_eq!((y[3], y[18], y.iter().sum::<f32>()), (0.5, 0.5, 1.0));
}

#[test]
fn rms_norm_matches_f64() {
    let mut rng = Rng(2);
    for len in LENGTHS {
        let (x, w) = (rng.vec(len), rng.vec(len));
        let y = everywhere("rms_norm", |k| {
            let mut y = vec![f32::NAN; len];
            k.rms_norm(&x, &w, 1e-6, &mut y);
            // Heads go four at a time, and what is left one by one.
            let mut heads = x.repeat(6);
            heads[..len].reverse();
            k.rms_norm_heads(&mut heads, &w, 1e-6);
            for head in heads.chunks(len).skip(1) {
                same_bits(head, &y, "a head");
            }
            y
        });
        let mean = x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / len as f64;
        for ((&x, &w), &y) in x.iter().zip(&w).zip(&y) {
            let exact = f64::from(x) / (mean + 1e-6).sqrt() * f64::from(w);
            // len / 16 + 4 roundings in the sum (halved by the root), four after it.
            let bound = (len as f64 / 32.0 + 8.0) * 2f64.powi(-24);
            assert!((f64::from(y) - exact).abs() <= bound * exact.abs() + 1e-30, "{y} for {exact}");
        }
    }
}

/// The order of the sum is a contract, not only an accident that all instruction sets share.
#[test]
fn rms_norm_sums_in_the_documented_order() {
    let x = Rng(3).vec(100);
    let mut lanes = [0f32; 16];
    for (i, &x) in x.iter().enumerate() {
        lanes[i % 16] = x.mul_add(x, lanes[i % 16]);
    }
    for half in [8, 4, 2, 1] {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
    }
    let r = 1.0 / (lanes[0] / 100.0 + 1e-5).sqrt();
    let expected: Vec<f32> = x.iter().map(|x| x * r * 0.5).collect();
    let y = everywhere("rms_norm", |k| {
        let mut y = vec![0.0; 100];
        k.rms_norm(&x, &[0.5; 100], 1e-5, &mut y);
        y
    });
    same_bits(&y, &expected, "rms_norm");
}

#[test]
fn sums_and_products_are_rounded_once() {
    let mut rng = Rng(4);
    for len in LENGTHS {
        let (a, b) = (rng.vec(len), rng.vec(len));
        let sum: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        let scaled: Vec<f32> = a.iter().map(|a| a * 0.3).collect();
        for k in Kernels::available() {
            let mut y = vec![f32::NAN; len];
            k.add(&a, &b, &mut y);
            same_bits(&y, &sum, "add");
            let mut y = a.clone();
            k.add_assign(&mut y, &b);
            same_bits(&y, &sum, "add_assign");
            let mut y = a.clone();
            k.scale(&mut y, 0.3);
            same_bits(&y, &scaled, "scale");
            let mut y = a.clone();
            k.add_scaled(&mut y, 0.3, &b);
            let fused: Vec<f32> = a.iter().zip(&b).map(|(a, b)| 0.3f32.mul_add(*b, *a)).collect();
            same_bits(&y, &fused, "add_scaled");
            let mut y = a.clone();
            k.above(&mut y, 0.3);
            let above: Vec<f32> = a.iter().map(|a| (a - 0.3).max(0.0)).collect();
            same_bits(&y, &above, "above");
        }
    }
}

#[test]
fn swiglu_matches_f64() {
    let mut rng = Rng(5);
    for len in LENGTHS {
        let gate: Vec<f32> = rng.vec(len).iter().map(|v| v * 30.0).collect();
        let up = rng.vec(len);
        let y = everywhere("swiglu", |k| {
            let mut y = vec![f32::NAN; len];
            k.gated(Activation::Silu, row(&gate), row(&up), RowsMut::new(&mut y, 1, len, len));
            y
        });
        for ((&g, &u), &y) in gate.iter().zip(&up).zip(&y) {
            let (g, u) = (f64::from(g), f64::from(u));
            let exact = g / (1.0 + (-g).exp()) * u;
            // exp 1 ulp, then a sum, a quotient and a product: 4 · 2^-23 at most.
            assert!((f64::from(y) - exact).abs() <= exact.abs() * 4.0 * 2f64.powi(-23) + 1e-37);
        }
    }
    let y = everywhere("swiglu at the ends", |k| {
        let mut y = vec![0.0; 3];
        k.gated(
            Activation::Silu,
            row(&[-200.0, 200.0, 0.0]),
            row(&[1.0; 3]),
            RowsMut::new(&mut y, 1, 3, 3),
        );
        y
    });
    assert_eq!(y, [0.0, 200.0, 0.0]);
}

/// Rows that nothing but the view says the place of: they lie apart, and what lies between is another's.
#[test]
fn asking_for_lines_writes_nothing() {
    for len in LENGTHS {
        let before = Rng(6).vec(3 * (len + 5));
        let after = everywhere("prefetch_write", |k| {
            let mut rows = before.clone();
            k.prefetch_write(RowsMut::new(&mut rows, 3, len, len + 5));
            rows
        });
        same_bits(&after, &before, "rows that were asked for");
        // For reading, the view alone forbids it: rows of any length can be asked for.
        everywhere("prefetch", |k| {
            k.prefetch(Rows::new(&before, 3, len, len + 5));
            before.clone()
        });
    }
}

/// Quantising one of many rows asks for the next one's lines, and does nothing else with it.
#[test]
fn quantising_before_a_next_row_changes_nothing() {
    for len in [32, 480, 512, 544, 1056] {
        let x = Rng(8).vec(2 * len);
        let (own, next) = x.split_at(len);
        let bytes = q8_row_bytes(len);
        let rows = |k: &Kernels, next: Option<&[f32]>| {
            let mut rows = Aligned::new(2 * bytes);
            rows.bytes_mut().fill(0xa5);
            let (to, place) = rows.bytes_mut().split_at_mut(bytes);
            k.quantize_q8_before(own, to, next.map(|next| (next, &*place)));
            rows.bytes().to_vec()
        };
        for kernels in Kernels::available() {
            let both = rows(kernels, Some(next));
            assert!(both == rows(kernels, None), "{len} floats on {}", kernels.isa());
            assert!(both[bytes..].iter().all(|&byte| byte == 0xa5), "{len} floats: the next row");
        }
    }
}

/// GELU in its approximation by tanh, in f64.
fn gelu(x: f64) -> f64 {
    let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
    x / (1.0 + (-2.0 * u).exp()) // = x / 2 * (1 + tanh u), without its cancellation
}

#[test]
fn squared_relu_clamped_silu_and_sigmoid_match_f64() {
    let mut rng = Rng(8);
    for len in LENGTHS {
        // Many are beyond the limits of 7.
        let x: Vec<f32> = rng.vec(len).iter().map(|v| v * 12.0).collect();
        let up: Vec<f32> = rng.vec(len).iter().map(|v| v * 12.0).collect();
        for (f, of) in [
            (Activation::SquaredRelu, (|x: f64| x.max(0.0).powi(2)) as fn(f64) -> f64),
            // 1.702 is what is nearest to it in f32.
            (Activation::ClampedSilu, |x| {
                x.min(7.0) / (1.0 + (-f64::from(1.702f32) * x.min(7.0)).exp())
            }),
            (Activation::Sigmoid, |x| 1.0 / (1.0 + (-x).exp())),
        ] {
            let name = format!("{f:?}");
            let alone = everywhere(&name, |k| {
                let mut y = x.clone();
                k.activate(f, &mut y);
                y
            });
            let gated = everywhere(&name, |k| {
                let mut y = vec![f32::NAN; len];
                k.gated(f, row(&x), row(&up), RowsMut::new(&mut y, 1, len, len));
                y
            });
            for i in 0..len {
                let exact = of(f64::from(x[i]));
                // As SiLU below, with a product more, whose error e^-y takes over: |y| is at most 21.
                let bound = exact.abs() * (4.0 + 21.0) * 2f64.powi(-23) + 1e-37;
                assert!(
                    (f64::from(alone[i]) - exact).abs() <= bound,
                    "{name}({}) = {}",
                    x[i],
                    alone[i]
                );
                let through = match f {
                    Activation::ClampedSilu => up[i].clamp(-7.0, 7.0) + 1.0,
                    _ => up[i],
                };
                assert_eq!(gated[i], alone[i] * through, "{name} of {} and {}", x[i], up[i]);
            }
        }
    }
}

#[test]
fn gelu_and_silu_match_f64() {
    let mut rng = Rng(7);
    for len in LENGTHS {
        let x: Vec<f32> = rng.vec(len).iter().map(|v| v * 12.0).collect();
        let up = rng.vec(len);
        let of = |f| {
            everywhere("activation", |k| {
                let mut y = x.clone();
                k.activate(f, &mut y);
                y
            })
        };
        let (g, s) = (of(Activation::Gelu), of(Activation::Silu));
        for ((&x, &g), &s) in x.iter().zip(&g).zip(&s) {
            let x = f64::from(x);
            // e^-2u takes over the error of 2u, 3 roundings of up to 2^-24 |2u|, if it matters at all:
            // |2u| is at most 90, or e^-2u is 0. Then exp, a sum, a quotient: 4 · 2^-23.
            let bound = (4.0 + 3.0 * 90.0 / 2.0) * 2f64.powi(-23);
            let exact = gelu(x);
            assert!((f64::from(g) - exact).abs() <= exact.abs() * bound + 1e-37, "gelu({x}) = {g}");
            let exact = x / (1.0 + (-x).exp());
            let bound = exact.abs() * 4.0 * 2f64.powi(-23);
            assert!((f64::from(s) - exact).abs() <= bound + 1e-37, "silu({x}) = {s}");
        }
        // Gated, it is the same with one product more.
        let y = everywhere("geglu", |k| {
            let mut y = vec![f32::NAN; len];
            k.gated(Activation::Gelu, row(&x), row(&up), RowsMut::new(&mut y, 1, len, len));
            y
        });
        let product: Vec<f32> = g.iter().zip(&up).map(|(g, up)| g * up).collect();
        same_bits(&y, &product, "geglu");
    }
    // Known values, and the ends.
    let y = everywhere("gelu at the ends", |k| {
        let mut y = vec![-200.0, 200.0, 0.0, 1.0, -1.0];
        k.activate(Activation::Gelu, &mut y);
        y
    });
    assert_eq!(y[..3], [0.0, 200.0, 0.0]);
    assert!((y[3] - 0.841_192).abs() < 1e-6 && (y[4] + 0.158_808).abs() < 1e-6, "{y:?}");
}

#[test]
fn layer_norm_matches_f64() {
    let mut rng = Rng(8);
    for len in LENGTHS {
        // A mean that outweighs the deviation.
        let x: Vec<f32> = rng.vec(len).iter().map(|v| v + 3.0).collect();
        let (w, b) = (rng.vec(len), rng.vec(len));
        let y = everywhere("layer_norm", |k| {
            let mut y = vec![f32::NAN; len];
            k.layer_norm(&x, &w, &b, 1e-5, &mut y);
            y
        });
        let n = len as f64;
        let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        let inverse = 1.0 / (variance + 1e-5).sqrt();
        // The mean, of magnitude up to 4, has len / 16 + 4 roundings in its sum, and one for each
        // difference; they go through the quotient by the deviation. The rest as in `rms_norm`.
        let (off, sum) = (2f64.powi(-22) * (n / 16.0 + 8.0) * inverse, n / 32.0 + 8.0);
        for (((&x, &w), &b), &y) in x.iter().zip(&w).zip(&b).zip(&y) {
            let (w, b) = (f64::from(w), f64::from(b));
            let normal = (f64::from(x) - mean) * inverse;
            let exact = normal * w + b;
            let bound = off * w.abs() + sum * 2f64.powi(-24) * (normal * w).abs();
            assert!((f64::from(y) - exact).abs() <= bound + 2f64.powi(-24) * exact.abs());
        }
    }
}

/// A norm over a row can be put together from the sums of its tiles.
#[test]
fn a_norm_from_sums_of_squares_is_a_norm() {
    let mut rng = Rng(9);
    for len in [16, 64, 2560] {
        let (x, w) = (rng.vec(len), rng.vec(len));
        let y = everywhere("scale_by", |k| {
            let squares: Vec<f32> = x.chunks(16).map(|tile| k.square_sum(tile)).collect();
            let mut y = x.clone();
            k.scale_by(&mut y, 1.0 / (k.sum(&squares) / len as f32 + 1e-6).sqrt(), &w);
            y
        });
        let mut whole = vec![0.0; len];
        scalar().rms_norm(&x, &w, 1e-6, &mut whole);
        for (y, whole) in y.iter().zip(whole) {
            // Both sum len numbers, in at most len / 16 + 16 roundings; the root halves that.
            let bound = (len as f32 / 16.0 + 16.0) * 2f32.powi(-24);
            assert!((y - whole).abs() <= bound * whole.abs(), "{y} for {whole}");
        }
    }
}

/// Their order is a contract: lane i has elements i, i + 16, ...; then lanes fold.
#[test]
fn sums_are_in_the_documented_order() {
    let x = Rng(10).vec(100);
    let fold = |f: fn(f32, f32) -> f32| {
        let mut lanes = [0f32; 16];
        for (i, &x) in x.iter().enumerate() {
            lanes[i % 16] = f(x, lanes[i % 16]);
        }
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                lanes[i] += lanes[i + half];
            }
        }
        lanes[0]
    };
    let got = everywhere("sums", |k| vec![k.sum(&x), k.square_sum(&x)]);
    same_bits(&got, &[fold(|x, sum| sum + x), fold(|x, sum| x.mul_add(x, sum))], "sums");
}

#[test]
fn rope_rotates_pairs_and_leaves_the_rest() {
    let mut rng = Rng(6);
    for (head_dim, rot) in [(128, 128), (64, 32), (80, 20), (16, 2)] {
        let angles: Vec<f32> = rng.vec(rot / 2).iter().map(|v| v * 3.0).collect();
        let cos_sin: Vec<f32> =
            angles.iter().map(|a| a.cos()).chain(angles.iter().map(|a| a.sin())).collect();
        let x = rng.vec(head_dim);
        for style in [RopeStyle::Normal, RopeStyle::Neox] {
            let y = everywhere("rope", |k| {
                let mut y = x.clone();
                k.rope(&mut y, &cos_sin, style);
                y
            });
            same_bits(&y[rot..], &x[rot..], "unrotated");
            for (i, angle) in angles.iter().enumerate() {
                let (a, b) = match style {
                    RopeStyle::Normal => (2 * i, 2 * i + 1),
                    RopeStyle::Neox => (i, i + rot / 2),
                };
                let (sin, cos) = f64::from(*angle).sin_cos();
                let (x0, x1) = (f64::from(x[a]), f64::from(x[b]));
                // Cosine and sine have half an ulp of their own; products of numbers below 1.
                let bound = 4.0 * 2f64.powi(-24);
                assert!((f64::from(y[a]) - (x0 * cos - x1 * sin)).abs() <= bound);
                assert!((f64::from(y[b]) - (x0 * sin + x1 * cos)).abs() <= bound);
            }
        }
    }
}

#[test]
fn argmax_takes_the_first_of_equals_and_never_nan() {
    for k in Kernels::available() {
        let check = |x: &[f32], expected: usize| assert_eq!(k.argmax(x), expected, "{}", k.isa());
        check(&[], 0);
        check(&[f32::NAN; 3], 0);
        check(&[f32::NAN, f32::NEG_INFINITY, f32::NEG_INFINITY], 1);
        check(&[1.0, f32::NAN, 2.0, 2.0, f32::NAN], 2);
        check(&[-0.0, 0.0], 0);
        for len in [17, 1024, 1025, 5000] {
            let mut x = Rng(len as u64).vec(len);
            for at in [len - 1, len / 2, 3, 0] {
                // Set from the back, so that an equal one stands behind.
                x[at] = 1.5;
                check(&x, at);
            }
            x[1] = f32::NAN;
            check(&x, 0);
        }
        // In the same lane of a vector, before and after.
        for [nan, best] in [[3, 19], [19, 3]] {
            let mut x = Rng(1).vec(1024);
            (x[nan], x[best]) = (f32::NAN, 1.5);
            check(&x, best);
        }
    }
}

#[test]
fn a_rotation_is_a_hadamard_matrix_and_its_own_inverse() {
    let mut rng = Rng(41);
    for (len, block) in [(16, 16), (32, 32), (96, 32), (128, 128), (256, 256), (576, 64)] {
        let x: Vec<f32> = rng.vec(len);
        let once = everywhere("rotate", |k| {
            let mut y = x.clone();
            k.rotate(&mut y);
            y
        });
        let scale = (block as f64).sqrt().recip();
        for (at, &y) in once.iter().enumerate() {
            let first = at / block * block;
            let even = |i: usize| (i & (at - first)).count_ones().is_multiple_of(2);
            let sign = |i: usize| if even(i) { 1.0 } else { -1.0 };
            let exact: f64 = (0..block).map(|i| sign(i) * f64::from(x[first + i])).sum();
            // Elements are at most 1: a sum of 256 has 16 roundings of 16 each and some more, times the scale.
            assert!((f64::from(y) - exact * scale).abs() < 1e-5, "{len}: element {at}");
        }
        let mut twice = once;
        scalar().rotate(&mut twice);
        let off = twice.iter().zip(&x).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(off < 1e-5, "{len}: {off}");
    }
}

/// The error function by its series, which loses 2^-25 of its greatest term, 3e5 at 4.
fn erf(x: f64) -> f64 {
    if x.abs() > 4.0 {
        return x.signum();
    }
    let (mut term, mut sum) = (x, x);
    for n in 1..120 {
        term *= -x * x / f64::from(n);
        sum += term / f64::from(2 * n + 1);
    }
    sum * 2.0 / std::f64::consts::PI.sqrt()
}

#[test]
fn gelu_by_the_error_function_matches_f64() {
    let mut rng = Rng(9);
    for len in LENGTHS {
        let mut x: Vec<f32> = rng.vec(len).iter().map(|v| v * 6.0).collect();
        x.extend([0.0, 20.0, -20.0, 1e-3, -1e-3]);
        let y = everywhere("gelu by erf", |k| {
            let mut y = x.clone();
            k.activate(Activation::GeluErf, &mut y);
            y
        });
        for (&x, &y) in x.iter().zip(&y) {
            let exact = f64::from(x) / 2.0 * (1.0 + erf(f64::from(x) / 2f64.sqrt()));
            // erf within 8 units, its argument and the last product half a one each, of at most |x|.
            let bound = f64::from(x).abs() * 9.0 * 2f64.powi(-24);
            assert!((f64::from(y) - exact).abs() <= bound, "{x}: {y}, not {exact}");
        }
    }
}

#[test]
fn gelu_by_a_sigmoid_matches_f64() {
    let mut rng = Rng(9);
    for len in LENGTHS {
        let mut x: Vec<f32> = rng.vec(len).iter().map(|v| v * 12.0).collect();
        x.extend([0.0, 60.0, -60.0, 1e-3, -1e-3]);
        let y = everywhere("gelu by a sigmoid", |k| {
            let mut y = x.clone();
            k.activate(Activation::QuickGelu, &mut y);
            y
        });
        for (&x, &y) in x.iter().zip(&y) {
            let x = f64::from(x);
            let exact = x / (1.0 + (-1.702 * x).exp());
            // The argument of e^x is off by half a unit of 20 at most, and e^x by two units; then a sum and a quotient.
            let bound = exact.abs() * 24.0 * 2f64.powi(-24) + x.abs() * 1e-9;
            assert!((f64::from(y) - exact).abs() <= bound, "{x}: {y}, not {exact}");
        }
    }
}

#[test]
fn relu_clamp_and_xielu_match_f64() {
    let mut rng = Rng(10);
    let of = Xielu { alpha_p: 0.9, alpha_n: 0.7, beta: 0.5, eps: -1e-6 };
    for len in LENGTHS {
        let mut x: Vec<f32> = rng.vec(len).iter().map(|v| v * 12.0).collect();
        x.extend([0.0, -1e-7, 1e-7, -1e-3, -40.0]);
        let run = |f: Activation| {
            everywhere(&format!("{f:?}"), |k| {
                let mut y = x.clone();
                k.activate(f, &mut y);
                y
            })
        };
        let clamped: Vec<f32> = x.iter().map(|x| x.clamp(-2.5, 2.5)).collect();
        same_bits(&run(Activation::Clamp(2.5)), &clamped, "clamp");
        let positive: Vec<f32> = x.iter().map(|x| x.max(0.0)).collect();
        same_bits(&run(Activation::Relu), &positive, "relu");
        for (&x, y) in x.iter().zip(run(Activation::Xielu(of))) {
            let [p, n, beta, eps] = [of.alpha_p, of.alpha_n, of.beta, of.eps].map(f64::from);
            let x = f64::from(x);
            let exact = match x > 0.0 {
                true => p * x * x + beta * x,
                false => (x.min(eps).exp_m1() - x) * n + beta * x,
            };
            // Two or three products and sums; below -20, e^x counts as e^-20.
            let bound = (x * x * p + x.abs()).min(1e3) * 4.0 * 2f64.powi(-24) + 2.1e-9;
            assert!((f64::from(y) - exact).abs() <= bound, "{x}: {y}, not {exact}");
            // Gates are as they are alone, times what they let through.
            let mut gated = [0.0];
            let (gate, up) = ([x as f32], [3.0]);
            let to = RowsMut::new(&mut gated, 1, 1, 1);
            scalar().gated(Activation::Xielu(of), row(&gate), row(&up), to);
            assert_eq!(gated[0], y * 3.0);
        }
    }
}

#[test]
fn layer_norms_of_heads_are_layer_norms() {
    let mut rng = Rng(11);
    for dim in LENGTHS {
        let (x, weight) = (rng.vec(5 * dim), rng.vec(5 * dim));
        for own in [false, true] {
            let weight = if own { &weight[..] } else { &weight[..dim] };
            let y = everywhere("layer norms of heads", |k| {
                let mut heads = x.clone();
                k.layer_norm_heads(&mut heads, dim, weight, 1e-5);
                heads
            });
            for (head, (x, y)) in x.chunks_exact(dim).zip(y.chunks_exact(dim)).enumerate() {
                let weight = if own { &weight[head * dim..][..dim] } else { weight };
                let mut alone = vec![f32::NAN; dim];
                scalar().layer_norm(x, weight, &vec![0.0; dim], 1e-5, &mut alone);
                for (y, alone) in y.iter().zip(&alone) {
                    assert!(y == alone, "{y}, not {alone}"); // but for the sign of zero
                }
            }
        }
    }
}
