//! What the environment says: sites, tokens, folders.
//!
//! The variables are those of `huggingface_hub`, Ollama and ModelScope, so that what is set for them holds
//! here too.

use crate::{Error, Site};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sites, folders, and how to download.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the Hugging Face Hub, without a slash at its end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// Address of ModelScope (`MODELSCOPE_DOMAIN`).
    pub modelscope: String,
    /// What the Hub knows the user by (`HF_TOKEN`, or the file that `hf auth login` writes).
    pub token: Option<String>,
    /// The file that holds a token when the variable is not set.
    pub token_file: PathBuf,
    /// The Hub's cache (`HF_HUB_CACHE`, `HF_HOME/hub`, `XDG_CACHE_HOME/huggingface/hub`).
    pub cache: PathBuf,
    /// What came from ModelScope, laid out as the Hub's cache.
    pub modelscope_cache: PathBuf,
    /// What folders were converted to, where it is kept.
    pub converted: PathBuf,
    /// Folders in which Ollama may keep models.
    pub ollama: Vec<PathBuf>,
    /// Folders in which LM Studio may keep models.
    pub lm_studio: Vec<PathBuf>,
    /// Whether the network is not to be used (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// Certificates to trust instead of Mozilla's list (`SSL_CERT_FILE`).
    pub certificates: Option<PathBuf>,
    /// Requests at a time for one file.
    pub connections: usize,
    /// Bytes that a request asks for at most.
    pub piece: u64,
    /// Tries in a row that bring no byte before a download is given up.
    pub tries: u32,
    /// Wait after the first failure; it doubles with each.
    pub first_wait: Duration,
}

impl Settings {
    /// What this process's environment says.
    ///
    /// # Errors
    /// When no folder for models is known, or an address is none.
    pub fn from_env() -> Result<Settings, Error> {
        Settings::from(|name| std::env::var_os(name))
    }

    /// What an environment says.
    ///
    /// # Errors
    /// As [`Self::from_env`].
    pub fn from(var: impl Fn(&str) -> Option<OsString>) -> Result<Settings, Error> {
        // A variable that is set to nothing says nothing.
        let var = |name: &str| var(name).filter(|value| !value.is_empty());
        let text = |name: &str| var(name).and_then(|value| value.into_string().ok());
        let home = var("HOME").or_else(|| var("USERPROFILE").filter(|_| cfg!(windows)));
        let home = home.map(PathBuf::from).filter(|home| home.is_absolute());
        let path = |name: &str| var(name).map(|value| expand(Path::new(&value), home.as_deref()));
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(home.as_deref()?.join(".cache")));
        let in_caches = |name: &str| Some(caches.as_deref()?.join(name));
        let hf_home = path("HF_HOME").or_else(|| in_caches("huggingface"));
        let in_hf_home = |name: &str| Some(hf_home.as_deref()?.join(name));
        let cache = path("HF_HUB_CACHE")
            .or_else(|| path("HUGGINGFACE_HUB_CACHE"))
            .or_else(|| in_hf_home("hub"))
            .ok_or(Error::NoHome)?;
        let token_file = path("HF_TOKEN_PATH").or_else(|| in_hf_home("token")).unwrap_or_default();
        let token = text("HF_TOKEN")
            .or_else(|| text("HUGGING_FACE_HUB_TOKEN"))
            .or_else(|| std::fs::read_to_string(&token_file).ok());
        let token = token.map(|token| token.trim().to_owned()).filter(|token| !token.is_empty());
        let endpoint = address("HF_ENDPOINT", text("HF_ENDPOINT"), "https://huggingface.co")?;
        let domain = text("MODELSCOPE_DOMAIN").map(|domain| match domain.contains("://") {
            true => domain,
            false => format!("https://{domain}"),
        });
        let modelscope = address("MODELSCOPE_DOMAIN", domain, "https://www.modelscope.cn")?;
        let in_home = |name: &str| Some(home.as_deref()?.join(name));
        let ollama = match path("OLLAMA_MODELS") {
            Some(folder) => vec![folder],
            None => [in_home(".ollama/models"), Some("/usr/share/ollama/.ollama/models".into())]
                .into_iter()
                .flatten()
                .collect(),
        };
        let lm_studio = [".lmstudio/models", ".cache/lm-studio/models"];
        Ok(Settings {
            endpoint,
            modelscope,
            token,
            token_file,
            modelscope_cache: in_caches("arclight/modelscope")
                .unwrap_or_else(|| cache.with_file_name("modelscope")),
            converted: in_caches("arclight/converted")
                .unwrap_or_else(|| cache.with_file_name("converted")),
            cache,
            ollama,
            lm_studio: lm_studio.into_iter().filter_map(in_home).collect(),
            offline: text("HF_HUB_OFFLINE").is_some_and(|value| is_true(&value)),
            certificates: path("SSL_CERT_FILE"),
            connections: 4,
            piece: 64 << 20,
            tries: 6,
            first_wait: Duration::from_secs(1),
        })
    }

    /// The cache of what comes from a site.
    pub(crate) fn cache_of(&self, site: Site) -> &Path {
        match site {
            Site::HuggingFace => &self.cache,
            Site::ModelScope => &self.modelscope_cache,
        }
    }

    /// The address of a site.
    pub(crate) fn endpoint_of(&self, site: Site) -> &str {
        match site {
            Site::HuggingFace => &self.endpoint,
            Site::ModelScope => &self.modelscope,
        }
    }

    /// The host of a site, as people know it.
    pub fn host(&self, site: Site) -> &str {
        let endpoint = self.endpoint_of(site);
        endpoint.split_once("://").map_or(endpoint, |(_, host)| host)
    }
}

/// As `huggingface_hub` reads its switches.
fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_ascii_lowercase().as_str())
}

fn expand(path: &Path, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path.to_owned(),
    }
}

fn address(variable: &'static str, text: Option<String>, default: &str) -> Result<String, Error> {
    let text = text.unwrap_or_else(|| default.to_owned());
    if text.starts_with("http://") || text.starts_with("https://") {
        return Ok(text.trim_end_matches('/').to_owned());
    }
    Err(Error::BadEndpoint { variable, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vars: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::from(|name| {
            let value = vars.iter().find(|(key, _)| *key == name)?.1;
            Some(value.into())
        })
    }

    #[test]
    fn the_cache_is_where_huggingface_hub_has_it() {
        let cache = |vars: &[(&str, &str)]| settings(vars).unwrap().cache;
        assert_eq!(cache(&[("HOME", "/h")]), Path::new("/h/.cache/huggingface/hub"));
        let xdg = [("HOME", "/h"), ("XDG_CACHE_HOME", "/c")];
        assert_eq!(cache(&xdg), Path::new("/c/huggingface/hub"));
        assert_eq!(cache(&[("HF_HOME", "~/f"), ("HOME", "/h")]), Path::new("/h/f/hub"));
        assert_eq!(cache(&[("HF_HUB_CACHE", "/x"), ("HF_HOME", "/f")]), Path::new("/x"));
        assert_eq!(cache(&[("HUGGINGFACE_HUB_CACHE", "/x"), ("HF_HOME", "/f")]), Path::new("/x"));
        assert_eq!(
            cache(&[("HOME", "/h"), ("HF_HOME", "")]),
            Path::new("/h/.cache/huggingface/hub")
        );
        assert!(matches!(settings(&[]), Err(Error::NoHome)));
    }

    #[test]
    fn a_token_comes_from_the_variable_or_the_file() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let home = folder.path().to_str().unwrap();
        assert_eq!(settings(&[("HF_HOME", home)]).unwrap().token.unwrap(), "hf_file");
        let both = [("HF_HOME", home), ("HF_TOKEN", " hf_variable ")];
        assert_eq!(settings(&both).unwrap().token.unwrap(), "hf_variable");
        assert_eq!(settings(&[("HOME", "/nowhere")]).unwrap().token, None);
    }

    #[test]
    fn addresses_have_a_scheme_and_no_slash_at_the_end() {
        let with = |value| settings(&[("HOME", "/h"), ("HF_ENDPOINT", value)]);
        assert_eq!(with("https://hf-mirror.com/").unwrap().endpoint, "https://hf-mirror.com");
        let error = with("hf-mirror.com").unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("HF_ENDPOINT=hf-mirror.com"));
        let domain = settings(&[("HOME", "/h"), ("MODELSCOPE_DOMAIN", "modelscope.ai")]).unwrap();
        assert_eq!(domain.endpoint_of(Site::ModelScope), "https://modelscope.ai");
        assert_eq!(domain.host(Site::HuggingFace), "huggingface.co");
    }

    #[test]
    fn offline_is_a_switch() {
        let offline =
            |value| settings(&[("HOME", "/h"), ("HF_HUB_OFFLINE", value)]).unwrap().offline;
        assert!(offline("1") && offline("ON") && offline("true"));
        assert!(!offline("0") && !offline("") && !offline("no"));
    }
}
