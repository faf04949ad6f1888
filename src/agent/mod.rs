//! The ReAct loop between a teacher and an interpreter, and the message formats it speaks.
