// dynalite ends when a client dies in the middle of a request. DynamoDB does not.
process.on('uncaughtException', (error) => {
  if (error.code !== 'ECONNRESET') {
    console.error(error)
    process.exit(1)
  }
})
