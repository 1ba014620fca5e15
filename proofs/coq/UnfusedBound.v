(* The lower bound without fusion: constant 2 (new ground beyond theorem (d)).

   Here q_i meets k_j at one moment (Score i j) and the accumulator of row i meets
   v_j at another (Absorb i j), which needs the score.  Scores may be kept, spilled,
   reloaded and formed again.  Then

     (visible pairs) (d^2 + dv^2) <= (M - 1) traffic

   so traffic >= 2 nq nk d^2 / (M - 1) for dv = d and no mask.  Whole rows are
   resident at each meeting: an algorithm that splits rows, as square tiling does,
   is outside of this bound.

   Hypotheses: 0 < dv, and the execution is valid and complete; scores are words, and
   statistics may be free or words like the others.  No range on M.
   Source: derived here. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine Meeting AttentionModel FusedBound.
Import ListNotations.

Definition unfused_targets d dv (p : nat * nat) : list (aword * aword) :=
  list_prod (q_words d (fst p)) (k_words d (snd p)) ++
  list_prod (a_words dv (fst p)) (v_words dv (snd p)).

Lemma unfused_targets_shape d dv p :
  NoDup (unfused_targets d dv p) /\ length (unfused_targets d dv p) = d * d + dv * dv.
Proof.
  unfold unfused_targets, q_words, a_words, k_words, v_words. split.
  - apply NoDup_app; try (apply NoDup_list_prod; apply words_NoDup; congruence).
    intros [x y] H H'. apply in_prod_iff in H as [? _]. apply in_prod_iff in H' as [? _].
    in_words.
  - now rewrite app_length, !prod_length, !map_length, !seq_length.
Qed.

Lemma unfused_targets_owner d dv p x y : In (x, y) (unfused_targets d dv p) ->
  query_side x = true /\ query_side y = false /\ owner (x, y) = p.
Proof.
  destruct p as [i j]. unfold unfused_targets, q_words, a_words, k_words, v_words. intros H.
  apply in_app_iff in H as [H | H]; apply in_prod_iff in H as [Hx Hy]; in_words; cbn; auto.
Qed.

Theorem unfused_bound_masked statistics d dv vis M es :
  0 < dv -> NoDup vis ->
  valid M (init (attention false true statistics d dv vis)) es ->
  complete false true statistics d dv vis (run (init _) es) ->
  length vis * (d * d + dv * dv) <= (M - 1) * traffic es.
Proof.
  intros Hdv Hvis V C.
  destruct (meeting M es V) as (L & HL & GI & G).
  apply Nat.le_trans with (length L); [ | exact HL ].
  apply (count_targets query_side owner (unfused_targets d dv)); trivial.
  - apply unfused_targets_shape.
  - apply unfused_targets_owner.
  - intros [i j] x y Hp H. apply in_app_iff in H as [H | H]; apply in_prod_iff in H as [Hx Hy];
      cbn in Hx, Hy.
    + (* q_i and k_j met when the score was formed *)
      assert (HS : In (@Do (attention false true statistics d dv vis) (Score i j)) es).
      { pose proof (C i j 0 Hp Hdv) as HA.
        destruct (content_done es (init _) _ _ (or_intror HA)) as [HA' | (w & [[] | []])].
        destruct (done_ready M _ es (init _) V HA') as (c & Hr & Hc).
        destruct (Hc _ _ (Hr eq_refl)) as [? | (w & [[] | []])]. assumption. }
      apply (GI _ HS).
      * cbn. rewrite !in_app_iff. tauto.
      * cbn. rewrite !in_app_iff. tauto.
      * unfold q_words, k_words in *. intros ->. in_words.
      * unfold q_words in *. in_words; reflexivity.
      * unfold k_words in *. in_words; reflexivity.
    + (* a_i and v_j met when the key was absorbed *)
      assert (Hx' : exists c, c < dv /\ Wa i c = x) by now apply in_words.
      destruct Hx' as (c & Hc & <-).
      apply (G (Wa i c) (Absorb i j)).
      * now apply C.
      * cbn. rewrite !in_app_iff. tauto.
      * cbn. rewrite !in_app_iff. tauto.
      * unfold v_words in *. intros <-. in_words.
      * now right.
      * left. unfold v_words in *. in_words; reflexivity.
Qed.

Theorem unfused_bound_constant_2 statistics d nq nk M es :
  0 < d ->
  valid M (init (attention false true statistics d d (all_pairs nq nk))) es ->
  complete false true statistics d d (all_pairs nq nk) (run (init _) es) ->
  2 * nq * nk * d * d <= (M - 1) * traffic es.
Proof.
  intros Hd V C.
  pose proof (unfused_bound_masked statistics d d _ M es Hd (all_pairs_NoDup nq nk) V C) as H.
  rewrite all_pairs_length in H. lia.
Qed.
