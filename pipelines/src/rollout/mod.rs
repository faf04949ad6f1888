//! Rollout: a teacher solves tasks as a ReAct agent in the interpreter.
