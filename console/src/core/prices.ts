// What tokens cost, by the prices that the operator configured.

import type { Schemas } from "./api";

export type Prices = Schemas["ModelPricesView"];

/** The cost in the currency of the prices; null where the model's price is not known, which is not 0. */
export function costOf(prices: Prices, model: string | null | undefined, input: number, output: number): number | null {
  const price = model ? prices.models[model] : undefined;
  return price ? (input * price.input + output * price.output) / 1e6 : null;
}
