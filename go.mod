module github.com/diana-limiter/diana

go 1.26.0
