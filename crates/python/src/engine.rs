//! A loaded model, and the command line.

use crate::answers::Answers;
use crate::faults::{failed, refused};
use crate::values::text;
use crate::waiting::wait;
use arclight_server::App;
use arclight_server::local::{Body, EncodeOptions, Reply, Rows};
use futures_util::StreamExt;
use numpy::{PyArray1, PyArray2, PyArrayMethods};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::{Handle, Runtime};

/// Runs the command line, whose first word is the program's name; the exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| arclight::main(args))
}

/// Writes warnings to standard error from now on. To be called once.
#[pyfunction]
pub(crate) fn log_warnings() -> PyResult<()> {
    arclight::log_warnings().map_err(failed)
}

/// A model that is loaded.
#[pyclass(frozen, module = "arclight._native")]
pub(crate) struct Engine {
    app: Arc<App>,
    path: PathBuf,
    /// `None` when it is closed.
    runtime: Mutex<Option<Runtime>>,
}

impl Engine {
    fn runtime(&self) -> PyResult<Handle> {
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        let runtime = runtime.as_ref().map(|runtime| runtime.handle().clone());
        runtime.ok_or_else(|| PyRuntimeError::new_err("this model is closed"))
    }
}

#[pymethods]
impl Engine {
    /// Loads a model with arguments of `arclight serve`; `progress` is called with the bytes that are done and all.
    #[new]
    fn new(py: Python<'_>, args: Vec<OsString>, progress: Option<Py<PyAny>>) -> PyResult<Engine> {
        let mut raised = None;
        let opened = py.detach(|| {
            let mut tell = |done: usize, all: usize| {
                let Some(progress) = progress.as_ref().filter(|_| raised.is_none()) else { return };
                raised = Python::attach(|py| progress.call1(py, (done, all)).err());
            };
            arclight::open(args, &mut tell)
        });
        if let Some(raised) = raised {
            return Err(raised);
        }
        let opened = opened.map_err(failed)?;
        let runtime = arclight::library_runtime().map_err(failed)?;
        Ok(Engine { app: opened.app, path: opened.path, runtime: Mutex::new(Some(runtime)) })
    }

    /// Starts to continue texts, all in one way, which `fields` says in JSON.
    fn ask(
        &self,
        py: Python<'_>,
        texts: Vec<Bound<'_, PyAny>>,
        fields: Vec<u8>,
        stream: bool,
        echo: bool,
    ) -> PyResult<Answers> {
        let texts = texts.iter().map(text).collect::<PyResult<Vec<_>>>()?;
        let (app, runtime) = (self.app.clone(), self.runtime()?);
        let asked = async move { app.ask(texts, &fields).await };
        let answers = wait(py, &runtime, asked)?.map_err(refused)?;
        Ok(Answers::read(&runtime, answers, stream, echo))
    }

    /// Starts to answer conversations, each the JSON of a chat completion.
    fn converse(&self, py: Python<'_>, bodies: Vec<Vec<u8>>, stream: bool) -> PyResult<Answers> {
        let (app, runtime) = (self.app.clone(), self.runtime()?);
        let asked = async move {
            let mut answers = Vec::with_capacity(bodies.len());
            for body in &bodies {
                answers.push(app.converse(body).await?);
            }
            Ok(answers)
        };
        let answers = wait(py, &runtime, asked)?.map_err(refused)?;
        Ok(Answers::read(&runtime, answers, stream, false))
    }

    /// The prompt that a conversation becomes: its text and its tokens.
    fn prompt_of(&self, py: Python<'_>, body: Vec<u8>) -> PyResult<(String, Vec<u32>)> {
        let app = self.app.clone();
        let asked = async move { app.prompt_of(&body).await };
        wait(py, &self.runtime()?, asked)?.map_err(refused)
    }

    /// Texts as vectors of length one: float32, `[texts, dimensions]`.
    fn vectors<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<Bound<'py, PyAny>>,
        dimensions: Option<usize>,
        truncate: bool,
        adapter: Option<String>,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let texts = texts.iter().map(text).collect::<PyResult<Vec<_>>>()?;
        let app = self.app.clone();
        let asked =
            async move { app.vectors(texts, dimensions, truncate, adapter.as_deref()).await };
        let vectors = wait(py, &self.runtime()?, asked)?.map_err(refused)?;
        Ok(PyArray2::from_vec2(py, &vectors)?)
    }

    /// How well documents answer a query.
    fn scores(&self, py: Python<'_>, query: String, documents: Vec<String>) -> PyResult<Vec<f32>> {
        let app = self.app.clone();
        let asked = async move { app.scores(query, documents).await };
        wait(py, &self.runtime()?, asked)?.map_err(refused)
    }

    /// Hidden states or logits of each token of a text: float32, `[tokens, …]`. The array is the engine's own memory.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        of: &Bound<'py, PyAny>,
        logits: bool,
    ) -> PyResult<Bound<'py, PyArray2<f32>>> {
        let (app, of) = (self.app.clone(), text(of)?);
        let rows = if logits { Rows::Logits } else { Rows::Hidden };
        let asked = async move { app.rows(of, rows).await };
        let (values, count) = wait(py, &self.runtime()?, asked)?.map_err(refused)?;
        let width = values.len() / count.max(1);
        PyArray1::from_vec(py, values).reshape([count, width])
    }

    /// Answers a request of HTTP: the status, and the body as it comes.
    fn request(
        &self,
        py: Python<'_>,
        method: &str,
        path: String,
        body: Vec<u8>,
    ) -> PyResult<(u16, Response)> {
        let (app, runtime) = (self.app.clone(), self.runtime()?);
        let method = method
            .parse()
            .map_err(|_| PyValueError::new_err(format!("{method:?} is no method of HTTP")))?;
        let asked = async move { app.request(method, &path, body).await };
        let Reply { status, body } = wait(py, &runtime, asked)?;
        let body = Arc::new(tokio::sync::Mutex::new(Some(body)));
        Ok((status.as_u16(), Response { body, runtime }))
    }

    /// The tokens of a text.
    fn encode(
        &self,
        py: Python<'_>,
        text: String,
        add_special: bool,
        parse_special: bool,
    ) -> PyResult<Vec<u32>> {
        let tokenizer = self.app.tokenizer().map_err(refused)?;
        let options = EncodeOptions { add_special, parse_special };
        let encoded = py.detach(|| tokenizer.encode(&text, options));
        encoded.map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// What tokens stand for, as bytes, which may begin or end within a character.
    fn decode_bytes<'py>(
        &self,
        py: Python<'py>,
        ids: Vec<u32>,
        skip_special: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let tokenizer = self.app.tokenizer().map_err(refused)?;
        let vocab = tokenizer.vocab_size();
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
            let message = format!("token {id} does not exist: there are {vocab}");
            return Err(PyValueError::new_err(message));
        }
        Ok(PyBytes::new(py, &py.detach(|| tokenizer.decode_bytes(&ids, skip_special))))
    }

    /// The bytes that a token stands for; `None` if there is no such token.
    fn token_bytes<'py>(&self, py: Python<'py>, id: u32) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let tokenizer = self.app.tokenizer().map_err(refused)?;
        Ok(tokenizer.token_bytes(id).map(|bytes| PyBytes::new(py, bytes)))
    }

    /// The token that has this text and no other; `None` if there is none.
    fn token_id(&self, text: &str) -> PyResult<Option<u32>> {
        Ok(self.app.tokenizer().map_err(refused)?.token_to_id(text.as_bytes()))
    }

    /// Tokens with a part to play: `(bos, eos, pad)`, and those that end an answer.
    fn roles(&self) -> PyResult<([Option<u32>; 3], Vec<u32>)> {
        let tokenizer = self.app.tokenizer().map_err(refused)?;
        let roles = [tokenizer.bos(), tokenizer.eos(), tokenizer.pad()];
        Ok((roles, tokenizer.eog_ids().to_vec()))
    }

    /// Tokens of the vocabulary.
    #[getter]
    fn vocab_size(&self) -> PyResult<usize> {
        Ok(self.app.tokenizer().map_err(refused)?.vocab_size())
    }

    /// Tokens that a sequence can have.
    #[getter]
    fn context(&self) -> PyResult<usize> {
        Ok(self.app.loaded().map_err(refused)?.replicas().context())
    }

    /// Requests that are computed at once.
    #[getter]
    fn slots(&self) -> PyResult<usize> {
        Ok(self.app.loaded().map_err(refused)?.replicas().slots())
    }

    /// Whether it writes texts.
    #[getter]
    fn writes(&self) -> PyResult<bool> {
        Ok(self.app.loaded().map_err(refused)?.replicas().writes())
    }

    /// What the model is called.
    #[getter]
    fn name(&self) -> &str {
        self.app.name()
    }

    /// Its file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The names of its adapters.
    #[getter]
    fn adapters(&self) -> Vec<String> {
        self.app.adapter_names()
    }

    /// The source of its chat template.
    #[getter]
    fn chat_template(&self) -> PyResult<Option<String>> {
        Ok(self.app.loaded().map_err(refused)?.info().template.clone())
    }

    /// What its file says of itself that is neither long nor a list, as JSON.
    fn metadata(&self) -> PyResult<String> {
        let model = self.app.loaded().map_err(refused)?;
        serde_json::to_string(&model.info().metadata)
            .map_err(|e| PyRuntimeError::new_err(e.to_string()))
    }

    /// Frees the model. What still runs fails.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take();
            let model = self.app.loaded();
            self.app.close();
            drop(model);
            if let Some(runtime) = runtime {
                runtime.shutdown_background();
            }
        });
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let runtime = self.runtime.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // Its threads are not waited for.
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

/// The body of an answer of HTTP: an iterator over its pieces, bytes each.
#[pyclass(frozen, module = "arclight._native")]
pub(crate) struct Response {
    body: Arc<tokio::sync::Mutex<Option<Body>>>,
    runtime: Handle,
}

#[pymethods]
impl Response {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let body = self.body.clone();
        let next = async move {
            let mut body = body.lock().await;
            match body.as_mut() {
                Some(stream) => stream.next().await,
                None => None,
            }
        };
        match wait(py, &self.runtime, next)? {
            Some(Ok(bytes)) => Ok(Some(PyBytes::new(py, &bytes))),
            Some(Err(e)) => Err(PyRuntimeError::new_err(e.to_string())),
            None => Ok(None),
        }
    }

    /// Wants no more: what is still computed for it ends.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let body = self.body.clone();
        wait(py, &self.runtime, async move { drop(body.lock().await.take()) })
    }
}
