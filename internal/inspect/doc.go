// Package inspect has what people are shown of queues, tasks, events, names of once and answers: as facts, in
// words. The commands print them, and the page for operators shows them; neither has a copy of its own.
package inspect
