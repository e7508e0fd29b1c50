//! References, tiny-model builders and fake machines for tests
