//! Layers of models that predict further tokens: they guess for their own model.

use super::*;
use arclight_engine::Counters;
use testkit::Predicts;

/// Delta nets; with experts; attention with experts; latent attention.
fn models(predicts: Predicts) -> Vec<Arc<ModelFile>> {
    let file = |model: TinyModel| {
        let model = TinyModel { predicts: Some(predicts), ..model };
        Arc::new(ModelFile::from_bytes(model.arch, model.gguf()))
    };
    vec![
        file(TinyModel::qwen35(TensorType::Q4_0)),
        file(TinyModel::qwen3next(TensorType::Q4_0, 192)),
        file(TinyModel { arch: "glm4moe", ..TinyModel::dots1(TensorType::Q8_0, 96) }),
        file(TinyModel::deepseek2(TensorType::Q8_0, 96)),
    ]
}

/// Answers long enough for many guesses.
fn requests() -> Vec<Request> {
    let sizes = [3, 40, 1, 100, 33, 64];
    let of = |(&len, seed)| {
        let request = request(len, seed);
        Request { end_tokens: Vec::new(), limit: Some(40), ..request }
    };
    sizes.iter().zip(0..).map(of).collect()
}

#[test]
fn layers_that_predict_change_no_token_and_are_often_right() {
    let two = FakeMachine::uniform(2, 2).machine().unwrap();
    for predicts in [Predicts::Noise, Predicts::Often] {
        for file in models(predicts) {
            let name = file.path().display().to_string();
            let mut engine =
                Engine::load_on(&file, &one_node(1), &options(1), &mut |_| {}).unwrap();
            let want: Vec<_> = requests().iter().map(|r| alone(&mut engine, r).0).collect();
            let serving = ReplicaOptions { speculation: Speculation::Predict(3), ..copies(1) };
            for machine in [&one_node(1), &two] {
                let replicas =
                    Replicas::load_on(&file, machine, &options(3), &serving, &mut |_| {}).unwrap();
                for round in 0..2 {
                    let tickets = replicas.submit_all(requests()).unwrap();
                    for (i, (ticket, want)) in tickets.into_iter().zip(&want).enumerate() {
                        let (tokens, _) = ticket.wait().unwrap();
                        assert_eq!(&tokens, want, "{name}, {predicts:?}, {i}, round {round}");
                    }
                }
                let counters = replicas.counters();
                let (drafted, accepted) = (counters.drafted_tokens, counters.accepted_tokens);
                assert!(drafted > 0 && accepted <= drafted, "{name}: {counters:?}");
                eprintln!("{name} {predicts:?}: {accepted} of {drafted}");
                if predicts == Predicts::Often {
                    assert!(accepted * 3 > drafted, "{name}: {accepted} of {drafted}");
                }
            }
        }
    }
}

#[test]
fn one_text_is_guessed_ahead_as_well() {
    for file in models(Predicts::Often) {
        let load = |speculation: &Speculation| {
            let options = speculation.options(options(1));
            let engine = Engine::load_on(&file, &one_node(2), &options, &mut |_| {}).unwrap();
            let guesses = Speculator::load(&engine, speculation, &options).unwrap();
            (engine, guesses.map(Speculator::always))
        };
        let request = &requests()[4];
        let want = alone(&mut load(&Speculation::Off).0, request).0;
        for speculation in [Speculation::Predict(3), Speculation::Lookup(4)] {
            let (mut engine, guesses) = load(&speculation);
            let mut guesses = guesses.unwrap();
            // The second time, all of the prompt but a token is found in the cache.
            for round in 0..2 {
                let helpers = Helpers { speculator: Some(&mut guesses), encoder: None };
                let run = engine.generate(requests().swap_remove(4), helpers).unwrap();
                let (got, RequestSummary { timings, cached, .. }) = run.wait().unwrap();
                assert_eq!(got, want, "{}, {speculation:?}, round {round}", file.path().display());
                assert_eq!((timings.tokens, cached > 0), (39, round > 0));
                if speculation.predicts() {
                    assert!(
                        timings.right * 10 > timings.guessed * 9 && timings.guessed > 0,
                        "{timings:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_model_without_such_layers_says_so() {
    let serving = ReplicaOptions { speculation: Speculation::Predict(3), ..copies(1) };
    let loaded = Replicas::load_on(&file(), &one_node(1), &options(1), &serving, &mut |_| {});
    let error = loaded.err().unwrap().to_string();
    assert!(error.contains("no layers that predict"), "{error}");
    // In a pipeline they would need what two nodes have.
    let model =
        TinyModel { predicts: Some(Predicts::Noise), ..TinyModel::qwen35(TensorType::Q8_0) };
    let file = Arc::new(ModelFile::from_bytes("mtp", model.gguf()));
    let options = LoadOptions { numa: Numa::Pipeline, ..options(1) };
    let two = FakeMachine::uniform(2, 2).machine().unwrap();
    let error = Replicas::load_on(&file, &two, &options, &serving, &mut |_| {}).err().unwrap();
    assert!(error.to_string().contains("pipeline"), "{error}");
}

#[test]
fn the_same_prompt_at_once_is_shared_and_still_predicted() {
    for file in models(Predicts::Often) {
        let serving = ReplicaOptions { speculation: Speculation::Predict(3), ..copies(1) };
        let replicas =
            Replicas::load_on(&file, &one_node(2), &options(3), &serving, &mut |_| {}).unwrap();
        let mut engine = Engine::load_on(&file, &one_node(1), &options(1), &mut |_| {}).unwrap();
        let asked = || Request { end_tokens: Vec::new(), limit: Some(40), ..request(200, 2) };
        let want = alone(&mut engine, &asked()).0;
        // Both are begun before either is computed, so each finds its pages in the other's.
        let (first, go) = hold(&replicas, 3);
        let tickets = [asked(), asked()].map(|request| replicas.submit(request).unwrap());
        drop(go);
        first.wait().unwrap();
        for ticket in tickets {
            let (tokens, _) = ticket.wait().unwrap();
            assert_eq!(tokens, want, "{}", file.path().display());
        }
        // Two answers to one prompt are copies of its sequence.
        for ticket in replicas.submit_all(vec![asked(), asked()]).unwrap() {
            assert_eq!(ticket.wait().unwrap().0, want, "{}", file.path().display());
        }
        let Counters { drafted_tokens: guessed, accepted_tokens: right, .. } = replicas.counters();
        assert!(right * 3 > guessed * 2, "{}: {right} of {guessed}", file.path().display());
    }
}
