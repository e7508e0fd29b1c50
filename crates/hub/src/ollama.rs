//! Ollama's models: manifests that name blobs by their SHA-256.
//!
//! ```text
//! MODELS/manifests/registry.ollama.ai/library/qwen3/4b     what `ollama run qwen3:4b` means
//! MODELS/manifests/hf.co/OWNER/REPO/Q4_K_M                 what came from the Hugging Face Hub
//! MODELS/blobs/sha256-...                                  the bytes; one layer is the GGUF file
//! ```
//!
//! Some of Ollama's own models are in forms of GGUF that only Ollama reads: whoever takes one looks into it
//! first.

use crate::cache::names;
use crate::local::{Model, Place};
use crate::name::{Pick, Repo};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};

const REGISTRY: &str = "registry.ollama.ai";
const LIBRARY: &str = "library";
const WEIGHTS: &str = "application/vnd.ollama.image.model";

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Layer {
    media_type: String,
    digest: String,
}

/// The model of a short name.
pub(crate) fn of_short(roots: &[PathBuf], family: &str, tag: Option<&str>) -> Option<Model> {
    let path = [REGISTRY, LIBRARY, family, tag.unwrap_or("latest")];
    roots.iter().find_map(|root| model(root, &path))
}

/// The models that came from a repository of the Hugging Face Hub.
pub(crate) fn of_repo(roots: &[PathBuf], repo: &Repo, pick: &Pick) -> Vec<Model> {
    let mut found = Vec::new();
    for root in roots {
        for host in ["hf.co", "huggingface.co"] {
            let path = [host, &repo.owner, &repo.name];
            let folder = path.iter().fold(root.join("manifests"), |folder, part| folder.join(part));
            for tag in names(&folder) {
                let wanted = match pick {
                    Pick::Default => true,
                    Pick::Quant(quant) => quant.eq_ignore_ascii_case(&tag),
                    Pick::File(_) | Pick::Encoder(_) => false,
                };
                let [host, owner, name] = path;
                found.extend(wanted.then(|| model(root, &[host, owner, name, &tag])).flatten());
            }
        }
    }
    found
}

/// All models.
pub(crate) fn all(roots: &[PathBuf]) -> Vec<Model> {
    let mut found = Vec::new();
    for root in roots {
        let manifests = root.join("manifests");
        for host in names(&manifests) {
            for owner in names(&manifests.join(&host)) {
                for name in names(&manifests.join(&host).join(&owner)) {
                    for tag in names(&manifests.join(&host).join(&owner).join(&name)) {
                        found.extend(model(root, &[&host, &owner, &name, &tag]));
                    }
                }
            }
        }
    }
    found
}

/// The model of a manifest, if its weights are there.
fn model(root: &Path, path: &[&str; 4]) -> Option<Model> {
    let file = path.iter().fold(root.join("manifests"), |folder, part| folder.join(part));
    let manifest: Manifest = serde_json::from_slice(&fs::read(file).ok()?).ok()?;
    let layer = manifest.layers.iter().find(|layer| layer.media_type == WEIGHTS)?;
    let hex = layer.digest.strip_prefix("sha256:")?;
    if !crate::api::is_hex(hex, 64) {
        return None;
    }
    let blob = root.join("blobs").join(format!("sha256-{hex}"));
    if !blob.is_file() {
        return None;
    }
    let [host, owner, name, tag] = *path;
    let (shown, quant) = match (host, owner) {
        (REGISTRY, LIBRARY) => (format!("{name}:{tag}"), String::new()),
        (REGISTRY, _) => (format!("{owner}/{name}:{tag}"), String::new()),
        _ => (format!("{owner}/{name}:{tag}"), tag.to_uppercase()),
    };
    Some(Model::new(shown, Place::Ollama, quant, vec![blob]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name::Site;

    fn put(root: &Path, path: &str, digest: &str, weights: bool) {
        let file = root.join("manifests").join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::create_dir_all(root.join("blobs")).unwrap();
        let layers = format!(
            r#"{{"layers": [{{"mediaType": "application/vnd.ollama.image.license", "digest": "sha256:0"}},
                {{"mediaType": "{WEIGHTS}", "digest": "sha256:{digest}"}}]}}"#
        );
        fs::write(file, layers).unwrap();
        if weights {
            fs::write(root.join("blobs").join(format!("sha256-{digest}")), "GGUF").unwrap();
        }
    }

    #[test]
    fn manifests_lead_to_weights() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        put(root, "registry.ollama.ai/library/qwen3/4b", &"a".repeat(64), true);
        put(root, "registry.ollama.ai/library/qwen3/latest", &"b".repeat(64), false);
        put(root, "registry.ollama.ai/library/evil/latest", "../../../etc/passwd", false);
        put(root, "hf.co/Qwen/Qwen3-4B-GGUF/Q4_K_M", &"c".repeat(64), true);
        let roots = [root.join("nowhere"), root.to_owned()];
        let model = of_short(&roots, "qwen3", Some("4b")).unwrap();
        assert!(model.path().ends_with(format!("sha256-{}", "a".repeat(64))));
        assert_eq!((model.name.as_str(), model.bytes), ("qwen3:4b", 4));
        assert!(of_short(&roots, "qwen3", None).is_none(), "its weights are not there");
        assert!(of_short(&roots, "evil", None).is_none());
        let repo =
            Repo { site: Site::HuggingFace, owner: "Qwen".into(), name: "Qwen3-4B-GGUF".into() };
        let quant = |quant: &str| of_repo(&roots, &repo, &Pick::Quant(quant.into()));
        assert_eq!(quant("q4_k_m").len(), 1);
        assert_eq!(quant("q8_0").len(), 0);
        assert_eq!(of_repo(&roots, &repo, &Pick::Default)[0].quant, "Q4_K_M");
        assert_eq!(all(&roots).len(), 2);
    }
}
