//! A model that says what it is told to: for tests of clients that go on by what an answer is.
//!
//! Its vocabulary is the demo model's and a token for every piece of a script. The layer adds nothing to a token's
//! embedding, which is the direction of the token that follows it, so an answer is the script's to the letter. The
//! template ends a prompt with a mark by which the answer begins: that of the first rule whose tool is offered, then of
//! the first whose words the last message has, if that is no result of a tool, and otherwise that of the last words.

use gguf::{Gguf, OwnedValue, TensorType, Value, Writer};

/// What a [`scripted`] model says.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Tokens of its context.
    pub context: u32,
    /// Names of tools, and the answer where one of that name is offered.
    pub rules: Vec<(String, String)>,
    /// Words, and the answer where the last message has them.
    pub words: Vec<(String, String)>,
    /// The answer to everything else.
    pub otherwise: String,
}

/// Width of an embedding, and so how many tokens a script may have.
const WIDTH: usize = 256;
/// Characters of a token of the script.
const PIECE: usize = 24;
const CONTROL: i32 = 3;

/// The file of a model that follows a script, with the tokenizer of `demo`, the demo model's file.
///
/// # Panics
/// When the script is too long, or `demo` is another model.
pub fn scripted(script: &Script, demo: &[u8]) -> Vec<u8> {
    let demo = Gguf::parse(demo).expect("the demo model");
    let meta = demo.metadata();
    let mut tokens = list(meta.get("tokenizer.ggml.tokens"));
    let mut types = meta.opt_i32s("tokenizer.ggml.token_type").unwrap().unwrap();
    let end = meta.opt_u32("tokenizer.ggml.eos_token_id").unwrap().unwrap() as usize;
    // The token that follows each; the end, if nothing else is said.
    let mut follows: Vec<(usize, usize)> = Vec::new();
    let rules = script.rules.iter().chain(&script.words);
    let answers = rules.map(|(_, say)| say).chain([&script.otherwise]);
    for (at, say) in answers.enumerate() {
        let mut last = tokens.len();
        tokens.push(mark(at).into_bytes());
        types.push(CONTROL);
        for piece in pieces(say, &tokens) {
            follows.push((last, tokens.len()));
            last = tokens.len();
            tokens.push(piece);
            types.push(1);
        }
    }
    assert!(follows.len() < WIDTH, "the script has {} pieces", follows.len());
    let (vocab, width) = (tokens.len(), WIDTH);
    let mut embeddings = vec![0f32; vocab * width];
    let mut head = vec![0f32; vocab * width];
    let directions: Vec<usize> = {
        let mut of = vec![0; vocab];
        follows.iter().enumerate().for_each(|(at, (token, _))| of[*token] = at + 1);
        of
    };
    directions.iter().enumerate().for_each(|(token, to)| embeddings[token * width + to] = 1.0);
    // A logit of 64 after the norm: nothing else is ever drawn.
    head[end * width] = 4.0;
    follows.iter().enumerate().for_each(|(at, (_, next))| head[next * width + at + 1] = 4.0);

    let mut writer = Writer::new();
    writer.kv("general.architecture", "llama").kv("general.name", "scripted");
    for (key, value) in [
        ("context_length", script.context),
        ("embedding_length", width as u32),
        ("block_count", 1),
        ("feed_forward_length", 256),
        ("attention.head_count", 1),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 64),
        ("attention.value_length", 64),
        ("rope.dimension_count", 64),
        ("vocab_size", vocab as u32),
    ] {
        writer.kv(format!("llama.{key}"), value);
    }
    writer.kv("llama.attention.layer_norm_rms_epsilon", 1e-6f32);
    writer.kv("llama.rope.freq_base", 10_000f32);
    for (key, value) in meta.iter().filter(|(key, _)| key.starts_with("tokenizer.")) {
        match key {
            "tokenizer.ggml.tokens" => writer.kv(key, OwnedValue::strings(&tokens)),
            "tokenizer.ggml.token_type" => writer.kv(key, &types[..]),
            "tokenizer.chat_template" => writer.kv(key, &*template(script)),
            _ => writer.kv(key, OwnedValue::from(value)),
        };
    }
    let bytes = |values: Vec<f32>| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (embeddings, head) = (bytes(embeddings), bytes(head));
    let ones = bytes(vec![1.0; width]);
    let zeros = vec![0u8; width * 256 * 4];
    let zeros = |columns: usize, rows: usize| &zeros[..columns * rows * 4];
    for (name, dims, data) in [
        ("token_embd.weight", vec![width, vocab], &embeddings[..]),
        ("output.weight", vec![width, vocab], &head[..]),
        ("output_norm.weight", vec![width], &ones[..]),
        ("blk.0.attn_norm.weight", vec![width], &ones[..]),
        ("blk.0.ffn_norm.weight", vec![width], &ones[..]),
        ("blk.0.attn_q.weight", vec![width, 64], zeros(WIDTH, 64)),
        ("blk.0.attn_k.weight", vec![width, 64], zeros(WIDTH, 64)),
        ("blk.0.attn_v.weight", vec![width, 64], zeros(WIDTH, 64)),
        ("blk.0.attn_output.weight", vec![64, width], zeros(WIDTH, 64)),
        ("blk.0.ffn_gate.weight", vec![width, 256], zeros(WIDTH, 256)),
        ("blk.0.ffn_up.weight", vec![width, 256], zeros(WIDTH, 256)),
        ("blk.0.ffn_down.weight", vec![256, width], zeros(WIDTH, 256)),
    ] {
        writer.tensor(name, &dims, TensorType::F32, data.to_vec());
    }
    let mut file = Vec::new();
    writer.write_to(&mut file).expect("a vector takes everything");
    file
}

fn list(value: Option<&Value<'_>>) -> Vec<Vec<u8>> {
    let Some(Value::Array(array)) = value else { panic!("no list") };
    array.strings().unwrap().map(<[u8]>::to_vec).collect()
}

fn mark(at: usize) -> String {
    format!("<|script{at}|>")
}

/// A text in tokens of its own, in the alphabet in which vocabularies write bytes.
fn pieces(say: &str, known: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut pieces: Vec<String> = Vec::new();
    let mut piece = String::new();
    let new = |piece: &String, pieces: &[String]| {
        !known.contains(&alphabet(piece)) && !pieces.contains(piece)
    };
    for letter in say.chars() {
        piece.push(letter);
        // One that is there already goes on.
        if piece.chars().count() >= PIECE && new(&piece, &pieces) {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    // What is left at the end goes to those before, if it is there already.
    while !piece.is_empty() && !new(&piece, &pieces) {
        let before =
            pieces.pop().unwrap_or_else(|| panic!("{say:?} is another answer, or a token"));
        piece.insert_str(0, &before);
    }
    pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
    pieces.iter().map(|piece| alphabet(piece)).collect()
}

/// Bytes as GPT-2's vocabularies write them: printable ones as they are, the others behind 255.
fn alphabet(text: &str) -> Vec<u8> {
    let printable = |byte: u8| matches!(byte, 33..=126 | 161..=172 | 174..=255);
    let letter = |byte: u8| match printable(byte) {
        true => char::from(byte),
        false => {
            let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
            char::from_u32(256 + before).expect("a letter")
        }
    };
    text.bytes().map(letter).collect::<String>().into_bytes()
}

fn template(script: &Script) -> String {
    let mut marks = String::new();
    for (at, (words, _)) in script.words.iter().enumerate().rev() {
        marks.push_str(&format!(
            "{{%- if '{words}' in said %}}{{%- set ns.mark = '{}' %}}{{%- endif %}}",
            mark(script.rules.len() + at)
        ));
    }
    // Of several the first rule counts.
    for (at, (tool, _)) in script.rules.iter().enumerate().rev() {
        marks.push_str(&format!(
            "{{%- for tool in tools or [] %}}{{%- if tool.function.name == '{tool}' %}}\
             {{%- set ns.mark = '{}' %}}{{%- endif %}}{{%- endfor %}}",
            mark(at)
        ));
    }
    let otherwise = mark(script.rules.len() + script.words.len());
    format!(
        "{{%- if tools %}}{{{{- '<|im_start|>system\\nTools: ' + (tools | tojson) + '<|im_end|>\\n' }}}}{{%- endif %}}\
         {{%- for message in messages %}}\
         {{{{- '<|im_start|>' + message.role + '\\n' }}}}\
         {{%- if message.content is string %}}{{{{- message.content }}}}{{%- endif %}}\
         {{%- for call in message.tool_calls or [] %}}\
         {{{{- '<tool_call>\\n{{\"name\": \"' + call.function.name + '\", \"arguments\": ' }}}}\
         {{%- if call.function.arguments is string %}}{{{{- call.function.arguments }}}}\
         {{%- else %}}{{{{- call.function.arguments | tojson }}}}{{%- endif %}}{{{{- '}}\\n</tool_call>' }}}}\
         {{%- endfor %}}{{{{- '<|im_end|>\\n' }}}}{{%- endfor %}}\
         {{%- if add_generation_prompt %}}{{%- set ns = namespace(mark='{otherwise}') %}}\
         {{%- set said = messages[-1].content if messages[-1].content is string else '' %}}\
         {{%- if messages[-1].role != 'tool' %}}{marks}{{%- endif %}}\
         {{{{- '<|im_start|>assistant\\n' + ns.mark }}}}{{%- endif %}}"
    )
}
