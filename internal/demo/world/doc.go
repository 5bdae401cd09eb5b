// Package world makes up the members, contacts and photos of the demo's photo
// site: a heavy-tailed graph, in which a few members have tens of thousands of
// contacts and a few have tens of thousands of followers, while most have a
// handful. Everything follows from a seed and a moment, so that two worlds of
// one seed and one moment are the same, byte for byte.
package world
