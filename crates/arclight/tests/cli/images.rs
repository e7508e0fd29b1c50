//! Images on the command line.

use crate::support::{Ran, complains, fails, file, folder, run, run_with, succeeds};

/// One red pixel, as GIF.
pub(crate) const PIXEL: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\xff\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// The demo model in a folder of its own, with an image encoder beside it or without.
fn model(name: &str, sees: bool) -> String {
    let folder = folder(name);
    let demo = testkit::repository("demo/arclight-demo.gguf");
    let path = format!("{folder}/model.gguf");
    std::fs::copy(demo, &path).unwrap();
    if sees {
        std::fs::write(format!("{folder}/mmproj-tiny.gguf"), testkit::encoder(256)).unwrap();
    }
    path
}

#[test]
fn a_prompt_can_ask_about_an_image() {
    let (model, image) = (model("sees", true), file("pixel.gif", PIXEL));
    let ask = ["-p", "What is this?", "-n", "6", "--greedy", "--no-pin"];
    let with = [&["run", &model, "--image", &image], &ask[..]].concat();
    let Ran { code, err, out } = run(&with);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("image encoder: ") && err.contains("mmproj-tiny.gguf"), "{err}");
    let tokens = |err: &str| -> usize {
        let line = err.lines().find(|line| line.starts_with("prompt")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let Ran { err: bare, .. } = run(&[&["run", &model, "--chat"], &ask[..]].concat());
    assert!(tokens(&err) > tokens(&bare), "{err}{bare}");
    let quiet = [&["run", &model, "--image", &image, "-q"], &ask[..]].concat();
    assert_eq!(succeeds(&quiet), out, "the same again");
}

#[test]
fn a_conversation_takes_images() {
    let (model, image) = (model("talks", true), file("pixel2.gif", PIXEL));
    let lines = format!("/image {image}\nWhat is this?\n/image /none.png\n/regenerate\n/quit\n");
    let Ran { code, err, .. } = run_with(&["chat", &model, "-n", "4", "--no-pin"], &lines);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("[an image of 1 by 1 pixels goes with the next message]"), "{err}");
    assert!(err.contains("/none.png"), "{err}");
}

#[test]
fn what_cannot_be_seen_is_told() {
    let blind = model("blind", false);
    let image = file("pixel3.gif", PIXEL);
    let ask = |model: &str, more: &[&str]| {
        let args = [&["run", model, "-p", "What?", "-q", "--no-pin"], more].concat();
        fails(if more.contains(&"--mmproj") { 1 } else { 2 }, &args)
    };
    let error = ask(&blind, &["--image", &image]);
    assert!(error.contains("sees no images") && error.contains("--mmproj"), "{error}");
    // A language model is no image encoder.
    let error = ask(&blind, &["--image", &image, "--mmproj", &blind]);
    assert!(error.contains("clip.projector_type"), "{error}");
    let sees = model("sees_more", true);
    let text = file("no.png", b"no image");
    let ran = run(&["run", &sees, "-p", "What?", "-q", "--image", &text]);
    let error = complains(1, &ran);
    assert!(error.contains("no.png") && error.contains("no image in PNG"), "{error}");
}
