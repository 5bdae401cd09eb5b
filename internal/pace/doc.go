// Package pace finds out how fast long work may go without hurting those whom
// the same servers serve meanwhile. Work asks for room before each of its batches:
//
//	leave, err := p.Enter(ctx) // waits for room
//	defer leave()
//
// # How it decides
//
// [Pacer.Run] asks each server something small, several times a second, and takes
// the time of the answers for a sign of load, as TCP Vegas does with round trips
// (Brakmo and Peterson, "TCP Vegas", IEEE JSAC 13(8), 1995): where requests queue
// up, answers are late long before any of them fails. Five answers make a round,
// and their median is held against what is usual for the server.
//
// What is usual is learned. It follows quicker answers at once and slower ones only
// at some percent a minute, so a server that is slow for an hour does not become
// usual, but one that was replaced by a slower one does in the end. Work begins
// with one batch at once, so that the usual is not learned under its own load.
//
// After each round the number of batches at once changes by the rule of additive
// increase and multiplicative decrease, which is known to come to rest at a fair
// share of what is there, with several who follow it, too (Chiu and Jain, "Analysis
// of the Increase and Decrease Algorithms for Congestion Avoidance in Computer
// Networks", Computer Networks and ISDN Systems 17, 1989):
//
//	all servers answer nearly as usual  one batch more, up to the most
//	one takes several times as long     half as many; with one batch left,
//	                                    twice the pause before each
//	one does not answer                 none, until it answers again; then one
//
// A server that needs microseconds may need five times as many for no reason. So
// nothing counts as slow below a floor, each server's own.
//
// The usual is what was seen, and it rises slowly: work that begins while a server
// is overloaded takes that for usual. So every server counts as slow above a
// ceiling, 100 ms, whatever is usual; of a server so far away that it is above the
// ceiling at rest, work is slow, and stays so.
package pace
