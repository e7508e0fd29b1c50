//! A session of any bytes at a stage: orders of a front and rows of a stage before, through the ledger, page tables and
//! the step itself.
#![no_main]

use arclight_engine::FuzzStage;
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use testkit::TinyModel;

thread_local! {
    static STAGE: RefCell<FuzzStage> = RefCell::new(FuzzStage::new(
        TinyModel { layers: 3, ..TinyModel::qwen3(gguf::TensorType::Q4_0) }.gguf(),
    ));
}

fuzz_target!(|bytes: &[u8]| {
    STAGE.with_borrow_mut(|stage| _ = stage.session(bytes));
});
