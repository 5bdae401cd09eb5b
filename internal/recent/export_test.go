package recent

// Count counts the end of a read.
var Count = count
