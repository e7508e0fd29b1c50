//! Which files of a repository are the model that was asked for.
//!
//! A repository holds one model in several quantisations, each a file or a series of files
//! (`-00001-of-00003.gguf`), and files that are no model to run: the vision part of a model (`mmproj`),
//! importance matrices. What a file is shows in its name alone. The order without a choice begins as
//! that of llama.cpp's `-hf`, and a model's image encoder is chosen as there.

use crate::name::Pick;
use std::collections::BTreeMap;

/// Quantisations that are taken when none is asked for, the first that there is.
const ORDER: [&str; 21] = [
    "Q4_K_M",
    "Q4_0",
    "Q8_0",
    "UD-Q4_K_XL",
    "Q4_K_S",
    "Q4_K_L",
    "Q4_K_XL",
    "Q4_1",
    "MXFP4",
    "MXFP4_MOE",
    "IQ4_NL",
    "IQ4_XS",
    "Q5_K_M",
    "Q5_K_S",
    "Q6_K",
    "Q5_0",
    "Q3_K_M",
    "F16",
    "FP16",
    "BF16",
    "F32",
];

/// A model among a repository's files: one file, or all parts in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Paths in the repository.
    pub(crate) files: Vec<String>,
    /// As files are labelled, in capitals: `Q4_K_M`; empty if the name does not say.
    pub(crate) quant: String,
}

/// Why nothing was chosen.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// There are no models at all.
    NoGguf,
    /// What was asked for is not among them.
    NotAmong { asked: String, have: Vec<String> },
    /// A part of what was asked for is missing.
    Incomplete { first: String, missing: String },
}

/// All models among these files, and for series with gaps the first gap.
pub(crate) fn candidates(files: &[String]) -> (Vec<Candidate>, Vec<(String, String)>) {
    let mut series: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for file in files.iter().filter(|file| is_model(file)) {
        series.entry(first_part(file)).or_default().push(file.clone());
    }
    let (mut whole, mut gaps) = (Vec::new(), Vec::new());
    for (first, mut found) in series {
        found.sort();
        let gap = parts(&first).into_iter().find(|part| !found.contains(part));
        match gap {
            Some(part) => gaps.push((found.swap_remove(0), part)),
            None => whole.push(Candidate { quant: quant(&first), files: found }),
        }
    }
    // Of two with the same label the plainer name is the model itself.
    whole.sort_by_key(|c| (c.files[0].matches('/').count(), c.files[0].len(), c.files[0].clone()));
    (whole, gaps)
}

/// The model among these files that is asked for.
pub(crate) fn choose(files: &[String], pick: &Pick) -> Result<Candidate, NoChoice> {
    let (all, gaps) = candidates(files);
    let found = match pick {
        Pick::Default => {
            let ranked = ORDER.iter().find_map(|label| all.iter().find(|c| c.quant == *label));
            ranked.or(all.first()).cloned()
        }
        Pick::Quant(quant) => all.iter().find(|c| is_of(c, quant)).cloned(),
        Pick::File(file) => {
            let among =
                |c: &&Candidate| c.files.iter().any(|f| f == file || base(f) == file.as_str());
            all.iter().find(among).cloned().or_else(|| {
                // Whoever names a file gets it, whatever it is.
                let exact = files.iter().find(|f| *f == file && parts(f).len() == 1)?;
                Some(Candidate { files: vec![exact.clone()], quant: quant(exact) })
            })
        }
        Pick::Encoder(quant) => encoder_of_type(files, quant.as_deref())?,
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let gap = gaps.into_iter().find(|(first, _)| match pick {
        Pick::Default => true,
        Pick::Encoder(_) => false,
        Pick::Quant(asked) => quant(first).eq_ignore_ascii_case(asked),
        Pick::File(file) => first_part(first) == first_part(file),
    });
    if let Some((first, missing)) = gap {
        return Err(NoChoice::Incomplete { first, missing });
    }
    if all.is_empty() {
        return Err(NoChoice::NoGguf);
    }
    Err(match pick {
        Pick::File(file) => NoChoice::NotAmong {
            asked: file.clone(),
            have: sorted(all.iter().map(|c| c.files[0].clone()).collect()),
        },
        Pick::Quant(asked) => NoChoice::NotAmong { asked: asked.clone(), have: labels(&all) },
        Pick::Default => NoChoice::NoGguf,
        Pick::Encoder(_) => {
            NoChoice::NotAmong { asked: "image encoder (mmproj)".to_owned(), have: Vec::new() }
        }
    })
}

/// The image encoder for a model among these files: of those in its folder or in folders around it one in the nearest,
/// and of these the one whose weights have about as many bits as the model's.
pub(crate) fn encoder_beside(files: &[String], model: &str) -> Option<String> {
    let bits = bits(&quant(model));
    let suits = |file: &&String| {
        let folder = &file[..file.len() - base(file).len()];
        is_encoder(file) && file.as_str() != model && model.starts_with(folder)
    };
    let folders = |file: &str| std::cmp::Reverse(file.matches('/').count());
    let rank = |file: &String| (folders(file), self::bits(&quant(file)).abs_diff(bits));
    files.iter().filter(suits).min_by_key(|file| (rank(file), *file)).cloned()
}

/// The image encoder of a repository, without a model that it is for.
fn encoder_of_type(files: &[String], asked: Option<&str>) -> Result<Option<Candidate>, NoChoice> {
    let mut all: Vec<&String> = files.iter().filter(|file| is_encoder(file)).collect();
    // Most have one in F16; a model's own types are no measure here.
    let order = ["F16", "FP16", "BF16", "F32", "Q8_0"];
    all.sort_by_key(|file| {
        let label = quant(file);
        let rank = order.iter().position(|one| *one == label).unwrap_or(order.len());
        (rank, file.matches('/').count(), *file)
    });
    let found = match asked {
        // Whoever names a file gets it, whatever it is called.
        Some(name) if name.to_ascii_lowercase().ends_with(".gguf") => {
            files.iter().find(|file| *file == name || base(file) == name)
        }
        Some(label) => all.iter().find(|file| quant(file).eq_ignore_ascii_case(label)).copied(),
        None => all.first().copied(),
    };
    if let (None, Some(asked), false) = (found, asked, all.is_empty()) {
        let have = sorted(all.into_iter().cloned().collect());
        return Err(NoChoice::NotAmong { asked: asked.to_owned(), have });
    }
    Ok(found.map(|file| Candidate { files: vec![file.clone()], quant: quant(file) }))
}

/// Bits of a weight, by the label of its type; 0 where it does not tell.
fn bits(label: &str) -> u32 {
    let digits = label.trim_start_matches(|c: char| !c.is_ascii_digit());
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

/// GGUF files that are the vision part of a model.
pub(crate) fn is_encoder(file: &str) -> bool {
    let name = base(file).to_ascii_lowercase();
    name.ends_with(".gguf") && name.contains("mmproj")
}

/// How each is asked for: by its quantisation, or by its file where the name does not tell one.
fn labels(all: &[Candidate]) -> Vec<String> {
    let mut labels = Vec::new();
    for c in all {
        let label = if c.quant.is_empty() { c.files[0].clone() } else { c.quant.clone() };
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    sorted(labels)
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// Whether a model is of a quantisation, as its name or the folder says.
fn is_of(c: &Candidate, quant: &str) -> bool {
    let folder = c.files[0].rsplit_once('/').map_or("", |(folder, _)| base(folder));
    let stem = stem(&c.files[0]).to_ascii_uppercase();
    let quant = quant.to_ascii_uppercase();
    let ends = stem.strip_suffix(&quant).is_some_and(|before| before.ends_with(['-', '.', '_']));
    c.quant == quant || (ends && c.quant.is_empty()) || folder.eq_ignore_ascii_case(&quant)
}

/// GGUF files that are a model to run.
fn is_model(file: &str) -> bool {
    let name = base(file).to_ascii_lowercase();
    name.ends_with(".gguf") && !name.contains("mmproj") && !name.starts_with("imatrix")
}

pub(crate) fn base(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, base)| base)
}

/// A file's name without ending and number of the part.
fn stem(file: &str) -> &str {
    let name = base(file);
    let name = name.get(..name.len().saturating_sub(5)).unwrap_or(name);
    numbers(name).map_or(name, |(stem, ..)| stem)
}

/// `(stem, number, count)` of `stem-00001-of-00003`.
fn numbers(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = name.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    let five = |s: &str| {
        (s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit())).then(|| s.parse().ok())?
    };
    let (number, count) = (five(number)?, five(count)?);
    (1..=count).contains(&number).then_some((stem, number, count))
}

/// The paths of all parts of the series that a file belongs to; of a file that belongs to none, itself.
fn parts(file: &str) -> Vec<String> {
    let name = base(file);
    let Some((stem, _, count)) = name.strip_suffix(".gguf").and_then(numbers) else {
        return vec![file.to_owned()];
    };
    let folder = &file[..file.len() - name.len()];
    (1..=count).map(|i| format!("{folder}{stem}-{i:05}-of-{count:05}.gguf")).collect()
}

fn first_part(file: &str) -> String {
    parts(file).swap_remove(0)
}

/// The label of a file's quantisation in capitals; empty if its name has none.
pub(crate) fn quant(file: &str) -> String {
    let stem = stem(file).to_ascii_uppercase();
    let words: Vec<&str> = stem.split(['-', '.']).collect();
    let Some(at) = words.iter().rposition(|word| is_label(word)) else { return String::new() };
    match at.checked_sub(1).map(|before| words[before]) {
        Some("UD") => format!("UD-{}", words[at]),
        _ => words[at].to_owned(),
    }
}

fn is_label(word: &str) -> bool {
    if ["F16", "FP16", "BF16", "F32", "NVFP4"].contains(&word) || word.starts_with("MXFP4") {
        return true;
    }
    let rest = ["IQ", "TQ", "Q"].iter().find_map(|kind| word.strip_prefix(kind)).unwrap_or("");
    let mut rest = rest.bytes();
    rest.next().is_some_and(|b| b.is_ascii_digit()) && rest.next().is_none_or(|b| b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn chosen(names: &[&str], pick: &Pick) -> Vec<String> {
        choose(&files(names), pick).unwrap().files
    }

    fn by_quant(label: &str) -> Pick {
        Pick::Quant(label.to_owned())
    }

    #[test]
    fn encoders_are_chosen_by_folder_and_bits() {
        let all = [
            "Q4_K_M/m-Q4_K_M.gguf",
            "m-BF16.gguf",
            "m-Q4_K_M.gguf",
            "mmproj-m-BF16.gguf",
            "mmproj-m-F32.gguf",
            "mmproj-m-Q8_0.gguf",
            "other/mmproj-F16.gguf",
        ];
        let of = |model: &str| encoder_beside(&files(&all), model);
        assert_eq!(of("m-Q4_K_M.gguf").as_deref(), Some("mmproj-m-Q8_0.gguf"));
        assert_eq!(of("m-BF16.gguf").as_deref(), Some("mmproj-m-BF16.gguf"));
        // In a folder around the model, but in none beside it.
        assert_eq!(of("Q4_K_M/m-Q4_K_M.gguf").as_deref(), Some("mmproj-m-Q8_0.gguf"));
        assert_eq!(of("other/m-Q8_0.gguf").as_deref(), Some("other/mmproj-F16.gguf"));
        assert_eq!(encoder_beside(&files(&all[..3]), all[0]), None);

        let of = |quant: Option<&str>| choose(&files(&all), &Pick::Encoder(quant.map(Into::into)));
        assert_eq!(of(None).unwrap().files, ["other/mmproj-F16.gguf"]);
        assert_eq!(of(Some("bf16")).unwrap().files, ["mmproj-m-BF16.gguf"]);
        assert!(
            matches!(of(Some("Q5_0")), Err(NoChoice::NotAmong { have, .. }) if have.len() == 4)
        );
        let none = choose(&files(&all[..3]), &Pick::Encoder(None));
        assert!(matches!(none, Err(NoChoice::NotAmong { asked, .. }) if asked.contains("mmproj")));
    }

    #[test]
    fn labels_are_read_from_names() {
        for (name, label) in [
            ("Qwen3-4B-Q4_K_M.gguf", "Q4_K_M"),
            ("qwen2.5-7b-instruct-q4_k_m-00001-of-00002.gguf", "Q4_K_M"),
            ("mistral-7b-v0.1.Q5_0.gguf", "Q5_0"),
            ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"),
            ("gpt-oss-20b-mxfp4.gguf", "MXFP4"),
            ("Phi-3-mini-4k-instruct-q4.gguf", "Q4"),
            ("Phi-3-mini-4k-instruct-fp16.gguf", "FP16"),
            ("sub/IQ3_XXS/m-IQ3_XXS.gguf", "IQ3_XXS"),
            ("model.gguf", ""),
            ("qwen3-4b.gguf", ""),
            ("QwQ-32B.gguf", ""),
        ] {
            assert_eq!(quant(name), label, "{name}");
        }
    }

    #[test]
    fn without_a_wish_the_usual_one_is_taken() {
        let all = ["m-Q8_0.gguf", "m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-F16.gguf", "README.md"];
        assert_eq!(chosen(&all, &Pick::Default), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen(&all[..2], &Pick::Default), ["m-Q4_0.gguf"]);
        assert_eq!(chosen(&["m-F16.gguf", "m-Q8_0.gguf"], &Pick::Default), ["m-Q8_0.gguf"]);
        // Neither the eyes of a model nor a matrix of importances.
        let others = ["mmproj-m-Q4_K_M.gguf", "imatrix_m.gguf", "m-BF16.gguf"];
        assert_eq!(chosen(&others, &Pick::Default), ["m-BF16.gguf"]);
        assert_eq!(chosen(&["weights.gguf"], &Pick::Default), ["weights.gguf"]);
        assert_eq!(choose(&files(&["a.safetensors"]), &Pick::Default), Err(NoChoice::NoGguf));
    }

    #[test]
    fn a_quantisation_is_found_in_any_case_and_in_folders() {
        let all = ["Q8_0/m-Q8_0.gguf", "m-q4_k_m.gguf", "m-UD-Q4_K_M.gguf", "BF16/weights.gguf"];
        assert_eq!(chosen(&all, &by_quant("q8_0")), ["Q8_0/m-Q8_0.gguf"]);
        assert_eq!(chosen(&all, &by_quant("Q4_K_M")), ["m-q4_k_m.gguf"]);
        assert_eq!(chosen(&all, &by_quant("ud-q4_k_m")), ["m-UD-Q4_K_M.gguf"]);
        assert_eq!(chosen(&all, &by_quant("bf16")), ["BF16/weights.gguf"]);
        let Err(NoChoice::NotAmong { asked, have }) = choose(&files(&all), &by_quant("Q2_K"))
        else {
            panic!("there is no Q2_K")
        };
        assert_eq!(asked, "Q2_K");
        assert!(
            have.contains(&"Q8_0".to_owned()) && have.contains(&"Q4_K_M".to_owned()),
            "{have:?}"
        );
    }

    #[test]
    fn split_models_come_whole_or_not_at_all() {
        let all = ["m-Q8_0-00002-of-00002.gguf", "m-Q8_0-00001-of-00002.gguf"];
        let want = ["m-Q8_0-00001-of-00002.gguf", "m-Q8_0-00002-of-00002.gguf"];
        assert_eq!(chosen(&all, &by_quant("Q8_0")), want);
        // Any part stands for all.
        assert_eq!(chosen(&all, &Pick::File(all[0].to_owned())), want);
        let lone = choose(&files(&all[..1]), &by_quant("q8_0"));
        let want = NoChoice::Incomplete { first: all[0].to_owned(), missing: all[1].to_owned() };
        assert_eq!(lone, Err(want));
    }

    #[test]
    fn a_file_is_named_with_or_without_its_folder() {
        let all = ["x/m-Q8_0.gguf", "mmproj-F16.gguf"];
        assert_eq!(chosen(&all, &Pick::File("x/m-Q8_0.gguf".into())), ["x/m-Q8_0.gguf"]);
        assert_eq!(chosen(&all, &Pick::File("m-Q8_0.gguf".into())), ["x/m-Q8_0.gguf"]);
        assert_eq!(chosen(&all, &Pick::File("mmproj-F16.gguf".into())), ["mmproj-F16.gguf"]);
        assert!(choose(&files(&all), &Pick::File("no.gguf".into())).is_err());
    }
}
