//! Parallel blocks: attention and feed-forward layer read one norm, and both are added to the stream (as
//! in GPT-J and Phi-2). A model says so with the operators that there are; here against the book in f64.

mod book;
mod run;

use arclight_graph::{
    Activation, Attention, Builder, Graph, Keep, KvType, Limits, Norm, NormOver, Outputs, PageId,
    PageTable,
};
use book::{EPS, assert_near, floats, name, rms_norm, times};
use gguf::{Gguf, TensorType};
use testkit::TinyModel;

/// A size, and the one in Miri, which takes a thousand times as long.
const fn size(usual: usize, miri: usize) -> usize {
    if cfg!(miri) { miri } else { usual }
}

const HIDDEN: usize = size(64, 32);
const FFN: usize = size(96, 32);
const HEADS: usize = 2;
const DIM: usize = size(32, 16);
const LAYERS: usize = size(3, 1);
const TOKENS: usize = size(40, 4);

fn build(gguf: &Gguf<'_>, nodes: usize) -> Graph {
    let vocab = gguf.tensor("token_embd.weight").unwrap().rows();
    let mut b = Builder::new(nodes, gguf);
    let embedding = b.vocab("token_embd.weight", vocab, HIDDEN).unwrap();
    let mut x = b.embed(embedding, 1.0);
    for layer in 0..LAYERS {
        b.layer(Some(layer));
        let of = |tensor: &str| name(layer, tensor);
        let heads = b.heads(HEADS, HEADS, DIM, (&of("attn_output"), HIDDEN)).unwrap();
        let weight = b.vector(&of("attn_norm"), HIDDEN).unwrap();
        let qkv = [of("attn_q"), of("attn_k"), of("attn_v")];
        let qkv = b.qkv(qkv.each_ref().map(String::as_str), HIDDEN, &heads).unwrap();
        let output = b.attn_output(&of("attn_output"), HIDDEN, &heads).unwrap();
        let pair = [of("ffn_gate"), of("ffn_up")];
        let pair = pair.each_ref().map(String::as_str);
        let (pair, down) = b.feed_forward(pair, &of("ffn_down"), HIDDEN, FFN).unwrap();
        let spec = Attention {
            v_norm: None,
            borrows: None,
            heads,
            q_norm: None,
            k_norm: None,
            norm_over: NormOver::Head,
            norm_eps: EPS,
            rope: None,
            scale: 1.0,
            soft_cap: None,
            latent_norm: None,
            norm_last: false,
            slopes: Vec::new(),
            biases: None,
            norm_centres: false,
            sinks: None,
            temperature: None,
            keep: Keep::All,
            cache: 0,
        };
        let n = b.norm(x, Norm::Rms { weight, eps: EPS });
        let a = b.linear(n, qkv);
        let a = b.attention(a, spec);
        let a = b.linear(a, output);
        let f = b.gated(n, pair, Activation::Silu);
        let f = b.linear(f, down);
        x = b.residual(x, a, None, (1.0, None));
        x = b.residual(x, f, None, (1.0, None));
    }
    b.layer(None);
    let weight = b.vector("output_norm.weight", HIDDEN).unwrap();
    let x = b.select(x);
    let x = b.norm(x, Norm::Rms { weight, eps: EPS });
    b.logits(x, embedding, 1.0, None);
    b.finish()
}

/// Logits of all tokens by the book.
fn reference(gguf: &Gguf<'_>, tokens: &[u32]) -> Vec<Vec<f64>> {
    let embedding = floats(gguf, "token_embd.weight");
    let row = |&t: &u32| embedding[t as usize * HIDDEN..][..HIDDEN].to_vec();
    let mut x: Vec<Vec<f64>> = tokens.iter().map(row).collect();
    for layer in 0..LAYERS {
        let of = |t: &str| floats(gguf, &name(layer, t));
        let norm = of("attn_norm");
        let n: Vec<Vec<f64>> = x.iter().map(|x| rms_norm(x, &norm)).collect();
        let all = |t: &str| {
            let matrix = of(t);
            n.iter().map(|n| times(&matrix, n)).collect::<Vec<_>>()
        };
        let (q, k, v) = (all("attn_q"), all("attn_k"), all("attn_v"));
        let (gate, up) = (all("ffn_gate"), all("ffn_up"));
        let (output, down) = (of("attn_output"), of("ffn_down"));
        for (i, x) in x.iter_mut().enumerate() {
            let mut heads = vec![0.0; HEADS * DIM];
            for (head, out) in heads.chunks_exact_mut(DIM).enumerate() {
                let of = |row: &[f64]| row[head * DIM..][..DIM].to_vec();
                let p: Vec<f64> = (0..=i).map(|j| times(&of(&q[i]), &of(&k[j]))[0].exp()).collect();
                let sum: f64 = p.iter().sum();
                for (j, p) in p.iter().enumerate() {
                    out.iter_mut().zip(of(&v[j])).for_each(|(o, v)| *o += p / sum * v);
                }
            }
            let silu = |x: f64| x / (1.0 + (-x).exp());
            let f: Vec<f64> = gate[i].iter().zip(&up[i]).map(|(g, u)| silu(*g) * u).collect();
            let sums = times(&output, &heads).into_iter().zip(times(&down, &f));
            x.iter_mut().zip(sums).for_each(|(x, (a, f))| *x += a + f);
        }
    }
    let norm = floats(gguf, "output_norm.weight");
    x.iter().map(|x| times(&embedding, &rms_norm(x, &norm))).collect()
}

#[test]
fn a_block_may_read_what_another_reads() {
    let model = TinyModel {
        hidden: HIDDEN,
        heads: HEADS,
        kv_heads: HEADS,
        head_dim: DIM,
        layers: LAYERS,
        ffn: FFN,
        ..TinyModel::llama(TensorType::F32)
    };
    let bytes = model.gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let tokens: Vec<u32> = (0..TOKENS as u32).map(|i| (i * 7919 + 13) % 300).collect();
    let want = reference(&gguf, &tokens);
    let mut all = Vec::new();
    for nodes in [1, 2] {
        let graph = build(&gguf, nodes);
        let limits = Limits {
            kv: KvType::F32.into(),
            tokens: TOKENS,
            outputs: TOKENS,
            pages: [2, 0, 0, 0],
            ranges: 1,
        };
        let mut executor = run::executor(&gguf, graph, run::plan(nodes), limits);
        let tables = [PageTable { first: 0, pages: vec![PageId(0), PageId(1)] }];
        let mut got = Vec::new();
        // Many rows, which threads share, then one at a time, which each thread does alone.
        let mut past = 0;
        while past < TOKENS {
            let end = if past == 0 { TOKENS.saturating_sub(5).max(2) } else { past + 1 };
            let rows = run::step(&mut executor, &tokens[past..end], past, &tables, Outputs::All);
            got.extend(rows.map(<[f32]>::to_vec));
            past = end;
        }
        // Three layers of sums of up to 96 roundings of 2^-24 each, in two blocks.
        let bound = 6.0 * 96.0 * 2f64.powi(-24);
        assert_near(&got, &want, bound, &format!("{nodes} nodes"));
        all.push(got);
    }
    assert!(all[0] == all[1], "the number of nodes changes bits");
}
