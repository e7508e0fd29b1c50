//! Files: the same bits however they are read, what stays in the page cache, and how far loading has come.

use arclight_engine::{
    BatchEntry, Engine, Error, FileRead, LoadOptions, LoadProgress, ModelFile, Numa, Outputs,
    PageCache, Reading,
};
use gguf::{Gguf, TensorType, Writer};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use testkit::TinyModel;

/// A folder on the file system that the tests are built on, which goes away with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("loading-{name}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        // Pages that are not written back stay in the page cache.
        File::open(&path).unwrap().sync_all().unwrap();
        path
    }

    /// Whether files here can be read past the page cache; if not, that is said.
    fn takes_direct_reads(&self) -> bool {
        let opened = memory::DirectFile::open(&self.file("probe", b"x"));
        opened.inspect_err(|fault| eprintln!("skipped: {fault}")).is_ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn options(reading: Reading, page_cache: Option<PageCache>) -> LoadOptions {
    let (context, step_outputs) = (Some(64), Some(40));
    LoadOptions { reading, page_cache, no_pin: true, context, step_outputs, ..Default::default() }
}

fn bits(engine: &mut Engine) -> Vec<u32> {
    let tokens: Vec<u32> = (0..40).map(|i| i * 7 % 300).collect();
    let sequence = engine.new_sequence().unwrap();
    let entry = BatchEntry { sequence, tokens: &tokens, outputs: Outputs::All };
    let logits = engine.step(&[entry]).unwrap();
    (0..logits.len()).flat_map(|i| logits.row(i)).map(|x| x.to_bits()).collect()
}

/// Ways to read a file; the last is left out where it cannot be.
fn ways(scratch: &Scratch) -> Vec<(Reading, Option<PageCache>)> {
    let mut ways = vec![
        (Reading::Mapped, None),
        (Reading::Mapped, Some(PageCache::Drop)),
        (Reading::Direct, None),
    ];
    ways.truncate(if scratch.takes_direct_reads() { 3 } else { 2 });
    ways
}

#[test]
fn every_way_to_read_a_file_gives_the_same_bits() {
    let scratch = Scratch::new("bits");
    let mixed = TinyModel { second: Some(TensorType::Q6_K), ..TinyModel::qwen3(TensorType::Q4_K) };
    let models = [
        ("mixed", mixed),
        ("experts", TinyModel::qwen3moe(TensorType::Q4_0, 768)),
        ("fused", TinyModel::phi3(TensorType::Q8_0)),
        ("biases", TinyModel::qwen2(TensorType::BF16)),
    ];
    for (name, model) in models {
        let bytes = model.gguf();
        let gguf = Gguf::parse(&bytes).unwrap();
        let begins = gguf.tensors().iter().filter(|t| t.offset % 4096 != 0).count();
        assert!(begins > 0 && bytes.len() % 4096 != 0, "{name}: nothing is unaligned");
        let path = scratch.file(&format!("{name}.gguf"), &bytes);
        for (numa, nodes) in
            [(Numa::Auto, 1), (Numa::TensorParallel, 3), (Numa::Mirror, 2), (Numa::Pipeline, 2)]
        {
            let load = |file: &ModelFile, of: LoadOptions| {
                let of = LoadOptions { numa, nodes: Some(nodes), ..of };
                bits(&mut Engine::load(file, &of, &mut |_| {}).unwrap())
            };
            let plain = ModelFile::from_bytes(name, bytes.clone());
            let expected = load(&plain, options(Reading::Mapped, None));
            for way in ways(&scratch) {
                let got = load(&ModelFile::open(&path).unwrap(), options(way.0, way.1));
                assert!(expected == got, "{name}, {numa:?}, {way:?}");
            }
        }
    }
}

#[test]
fn a_model_in_several_files_is_read_from_all_of_them() {
    let scratch = Scratch::new("split");
    let bytes = TinyModel::qwen3(TensorType::Q4_0).gguf();
    let gguf = Gguf::parse(&bytes).unwrap();
    let tensors = gguf.tensors();
    for (no, part) in tensors.chunks(tensors.len().div_ceil(3)).enumerate() {
        let (mut writer, mut out) = (Writer::new(), Vec::new());
        if no == 0 {
            for (key, value) in gguf.metadata().iter() {
                writer.kv(key, value);
            }
        }
        writer.kv("split.no", no as u16).kv("split.count", 3u16);
        writer.kv("split.tensors.count", tensors.len() as i32);
        for t in part {
            writer.tensor(t.name(), t.shape.dims(), t.ty, t.data);
        }
        writer.write_to(&mut out).unwrap();
        scratch.file(&format!("tiny-{:05}-of-00003.gguf", no + 1), &out);
    }
    let whole = ModelFile::from_bytes("tiny", bytes.clone());
    let load = |file: &ModelFile, of: &LoadOptions| {
        bits(&mut Engine::load(file, of, &mut |_| {}).unwrap())
    };
    let expected = load(&whole, &options(Reading::Mapped, None));
    for way in ways(&scratch) {
        let file = ModelFile::open(scratch.0.join("tiny-00001-of-00003.gguf")).unwrap();
        assert!(expected == load(&file, &options(way.0, way.1)), "{way:?}");
    }
}

/// Some MiB, so that what the kernel keeps together at the ends of parts is little of it.
fn larger() -> Vec<u8> {
    let sizes =
        TinyModel { hidden: 512, ffn: 4096, layers: 8, ..TinyModel::qwen3(TensorType::Q8_0) };
    sizes.gguf()
}

#[test]
fn pages_stay_in_the_page_cache_or_leave_it() {
    let scratch = Scratch::new("cache");
    let bytes = larger();
    let path = scratch.file("model.gguf", &bytes);
    let watch = memory::MappedFile::open(&path).unwrap();
    watch.uncache(&watch).unwrap();
    if watch.cached_bytes().unwrap() > 0 {
        eprintln!("skipped: this file system keeps pages that it is to give up");
        return;
    }
    for (reading, page_cache) in ways(&scratch) {
        // Memory holds a file of this size twice.
        let keeps = (reading, page_cache) == (Reading::Mapped, None);
        let expected = if keeps { PageCache::Keep } else { PageCache::Drop };
        let weights: usize =
            Gguf::parse(&bytes).unwrap().tensors().iter().map(|t| t.data.len()).sum();
        let load = || {
            watch.uncache(&watch).unwrap();
            let file = ModelFile::open(&path).unwrap();
            let of = options(reading, page_cache);
            let engine = Engine::load(&file, &of, &mut |_| {}).unwrap();
            let read = engine.report().read.unwrap();
            assert_eq!(read, FileRead { reading, page_cache: expected, bytes: weights });
            file.cached_bytes().unwrap()
        };
        if keeps {
            // The kernel may take single pages at any time, and did (2 of 16,372 once); the engine takes
            // the same ones each time.
            let cached = [load(), load(), load()];
            assert!(cached.iter().any(|&c| c >= bytes.len()), "{cached:?} of {}", bytes.len());
        } else {
            let cached = load();
            assert!(cached < bytes.len() / 50, "{reading:?}: {cached} of {}", bytes.len());
        }
    }
}

/// Pages leave while loading goes on, not at its end.
#[test]
fn pages_leave_as_they_are_packed() {
    let scratch = Scratch::new("going");
    let bytes = larger();
    let path = scratch.file("model.gguf", &bytes);
    let watch = memory::MappedFile::open(&path).unwrap();
    let mut most = Vec::new();
    for page_cache in [PageCache::Keep, PageCache::Drop] {
        assert_eq!(
            watch.iter().map(|&b| u64::from(b)).sum::<u64>(),
            bytes.iter().map(|&b| u64::from(b)).sum::<u64>()
        );
        watch.release(&watch).unwrap();
        let mut left = usize::MAX;
        let mut told = |p: LoadProgress| {
            // Behind the last matrix come vectors.
            if p.done > p.total * 9 / 10 && p.done < p.total {
                std::thread::sleep(std::time::Duration::from_millis(100));
                left = left.min(watch.cached_bytes().unwrap());
            }
        };
        let file = ModelFile::open(&path).unwrap();
        Engine::load(&file, &options(Reading::Mapped, Some(page_cache)), &mut told).unwrap();
        most.push(left);
    }
    assert!(most[0] >= bytes.len(), "{most:?}");
    if watch.cached_bytes().unwrap() >= bytes.len() {
        eprintln!("skipped: this file system keeps pages that it is to give up");
        return;
    }
    assert!(most[1] < bytes.len() / 2, "{most:?} of {}", bytes.len());
}

#[test]
fn progress_ends_with_all_bytes() {
    let scratch = Scratch::new("progress");
    let bytes = larger();
    let path = scratch.file("model.gguf", &bytes);
    let weights: usize = Gguf::parse(&bytes).unwrap().tensors().iter().map(|t| t.data.len()).sum();
    for way in ways(&scratch) {
        let mut told: Vec<(usize, usize)> = Vec::new();
        let mut progress = |p: LoadProgress| told.push((p.done, p.total));
        let file = ModelFile::open(&path).unwrap();
        Engine::load(&file, &options(way.0, way.1), &mut progress).unwrap();
        assert!(told.len() > 8 && told.windows(2).all(|pair| pair[0].0 <= pair[1].0), "{told:?}");
        assert!(told.iter().all(|&(_, total)| total == weights), "{told:?}");
        assert_eq!(told.last(), Some(&(weights, weights)));
    }
}

#[test]
fn a_file_that_is_cut_off_meanwhile_is_an_error() {
    let scratch = Scratch::new("cut");
    let bytes = larger();
    let path = scratch.file("model.gguf", &bytes);
    if !scratch.takes_direct_reads() {
        return;
    }
    let file = ModelFile::open(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(bytes.len() as u64 / 2).unwrap();
    let loaded = Engine::load(&file, &options(Reading::Direct, None), &mut |_| {});
    let fault = loaded.err().expect("half of the weights").to_string();
    assert!(fault.contains("model.gguf") && fault.contains("end of file"), "{fault}");
}

#[test]
fn a_file_that_has_gone_cannot_be_opened_again() {
    let scratch = Scratch::new("gone");
    let path = scratch.file("model.gguf", &TinyModel::qwen3(TensorType::Q4_0).gguf());
    let file = ModelFile::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let loaded = Engine::load(&file, &options(Reading::Direct, None), &mut |_| {});
    assert!(matches!(loaded.err(), Some(Error::File(memory::Error::NotFound { .. }))));
}
